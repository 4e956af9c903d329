// What a job wrote, as pieces of text with classes: colours and weights of ANSI are heeded, all else is left out.
// Nothing of it ever becomes markup or a link.

export type Piece = { text: string; kind: string };
type Look = { fg: string; bg: string; bold: boolean; dim: boolean; italic: boolean; under: boolean };

const PLAIN: Look = { fg: "", bg: "", bold: false, dim: false, italic: false, under: false };
// CSI …, OSC … (ended by BEL or ST), other escapes, and control characters other than tab and line feed.
const ESCAPE =
  /\x1b\[([0-9;:?]*)([ -/]*[@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function kindOf(look: Look): string {
  const found = [look.fg && `f${look.fg}`, look.bg && `b${look.bg}`];
  for (const name of ["bold", "dim", "italic", "under"] as const) if (look[name]) found.push(name);
  return found.filter(Boolean).join(" ");
}

function turned(look: Look, codes: number[]): Look {
  let next = { ...look };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.under = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.under = false;
    else if (code >= 30 && code <= 37) next.fg = String(code - 30);
    else if (code >= 90 && code <= 97) next.fg = String(code - 82);
    else if (code === 39) next.fg = "";
    else if (code >= 40 && code <= 47) next.bg = String(code - 40);
    else if (code >= 100 && code <= 107) next.bg = String(code - 92);
    else if (code === 49) next.bg = "";
    else if (code === 38 || code === 48) {
      const colour = codes[at + 1] === 5 ? codes[at + 2] : -1;
      at += codes[at + 1] === 2 ? 4 : 2;
      if (colour >= 0 && colour < 16) next[code === 38 ? "fg" : "bg"] = String(colour);
    }
  }
  return next;
}

/** Lines as pieces; a carriage return within a line leaves what was written last, as a terminal shows it. */
export class Lines {
  #look = { ...PLAIN };

  take(text: string): Piece[][] {
    return text.split("\n").map((line) => this.#line(line.replace(/\r+$/, "")));
  }

  #line(text: string): Piece[] {
    const shown = text.slice(text.lastIndexOf("\r") + 1);
    const pieces: Piece[] = [];
    let from = 0;
    for (const match of shown.matchAll(ESCAPE)) {
      if (match.index > from) pieces.push({ text: shown.slice(from, match.index), kind: kindOf(this.#look) });
      from = match.index + match[0].length;
      if (match[2] === "m") this.#look = turned(this.#look, (match[1] || "0").split(/[;:]/).map(Number));
    }
    if (from < shown.length) pieces.push({ text: shown.slice(from), kind: kindOf(this.#look) });
    return pieces;
  }
}
