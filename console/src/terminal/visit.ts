// A shell inside a running job, over the WebSocket that `yard shell` uses: a letter, then its content.

import { socket } from "../api";

export type Heard = {
  data: (bytes: Uint8Array) => void;
  open: () => void;
  /** It is over: the exit code of the shell, or why there is none. */
  end: (text: string) => void;
};

const LETTERS = new TextEncoder();
const WORDS = new TextDecoder();

export class Visit {
  #socket: WebSocket;
  #over = false;
  #open = false;

  constructor(label: string, rows: number, columns: number, heard: Heard) {
    this.#socket = socket(`/jobs/${encodeURIComponent(label)}/terminal`);
    const end = (text: string) => {
      if (this.#over) return;
      this.#over = true;
      heard.end(text);
      this.#socket.close();
    };
    this.#socket.onopen = () =>
      this.#socket.send(JSON.stringify({ do: "shell", argv: [], env: { TERM: "xterm-256color" }, rows, columns }));
    this.#socket.onclose = () =>
      end(this.#open ? "The connection is lost; the shell ends by itself after five minutes." : "The yard did not let this page in.");
    this.#socket.onmessage = ({ data }) => {
      if (typeof data === "string") {
        const news = JSON.parse(data);
        if (news.event === "error") end(`${news.data.detail}${news.data.hint ? `. ${news.data.hint}` : ""}`);
        return;
      }
      const [kind, content] = [String.fromCharCode(new Uint8Array(data)[0]), new Uint8Array(data, 1)];
      if (kind === "d") heard.data(content);
      else if (kind === "h") {
        this.#open = true;
        heard.open();
      } else if (kind === "x") end(`The shell ended with ${JSON.parse(WORDS.decode(content)).code ?? 0}.`);
      else if (kind === "e") end(WORDS.decode(content));
    };
  }

  type(bytes: Uint8Array): void {
    this.#send("d", bytes);
  }

  resize(rows: number, columns: number): void {
    this.#send("w", LETTERS.encode(JSON.stringify({ rows, columns })));
  }

  close(): void {
    this.#over = true;
    this.#socket.close();
  }

  #send(kind: string, content: Uint8Array): void {
    if (!this.#open || this.#socket.readyState !== WebSocket.OPEN) return;
    const message = new Uint8Array(1 + content.length);
    message[0] = kind.charCodeAt(0);
    message.set(content, 1);
    this.#socket.send(message);
  }
}

/** Keys that are for this page and not for the job: `~` at the beginning of a line, as in `yard shell`. */
export class Escapes {
  #fresh = true;
  #held = false;

  /** What of it is for the job; null: the person leaves. */
  sift(typed: string): string | null {
    let passed = "";
    for (const key of typed) {
      if (this.#held) {
        this.#held = false;
        if (key === ".") return null;
        passed += key === "~" ? "~" : `~${key}`;
        this.#fresh = key === "\r" || key === "\n";
      } else if (key === "~" && this.#fresh) this.#held = true;
      else {
        passed += key;
        this.#fresh = key === "\r" || key === "\n";
      }
    }
    return passed;
  }
}
