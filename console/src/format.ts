// Times, spans and amounts as people read them, in the viewer's own zone.

const DAY_MS = 86_400_000;
// Made once: one that is made for each text takes longer than all else in a row.
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const DOLLARS = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD" });
const DECIMAL = new Intl.NumberFormat(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export function span(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  const [min, h] = [Math.floor((s % 3600) / 60), Math.floor((s % 86_400) / 3600)];
  if (s < 86_400) return min ? `${h} h ${String(min).padStart(2, "0")} min` : `${h} h`;
  return h ? `${Math.floor(s / 86_400)} d ${h} h` : `${Math.floor(s / 86_400)} d`;
}

export function clock(ms: number | null | undefined, now = Date.now()): string {
  if (!ms) return "";
  const at = new Date(ms);
  const time = TIME.format(at);
  if (Math.abs(now - ms) < DAY_MS / 2 || at.toDateString() === new Date(now).toDateString()) return time;
  return `${DAY.format(at)}, ${time}`;
}

export function gpus(number: number): string {
  return Number.isInteger(number) ? String(number) : number.toFixed(2);
}

export function decimal(number: number): string {
  return DECIMAL.format(number);
}

export function dollars(amount: number | null | undefined): string {
  if (amount === null || amount === undefined) return "price not known";
  return DOLLARS.format(amount);
}

/** Numbers in order, those that follow each other as one: 0-3, 6. */
export function runs(numbers: number[]): string {
  const found: [number, number][] = [];
  for (const each of numbers) {
    const last = found.at(-1);
    if (last && each === last[1] + 1) last[1] = each;
    else found.push([each, each]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

/** The name of a field as words. */
export function words(name: string): string {
  return name
    .replaceAll("_", " ")
    .replace(/\bgpu hours\b/, "GPU-hours")
    .replace(/\b(gpu|cpu|io)(?=s?\b)/g, (each) => each.toUpperCase());
}

/** A text without characters that turn the direction of those around it, or that cannot be seen. */
export function plain(value: unknown): string {
  return String(value ?? "").replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    "\ufffd",
  );
}

/** Seconds of `30s`, `45m`, `1h30m`, `2d`; null: it is not a time. */
export function seconds(text: string): number | null {
  const match = /^(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m(?:in)?)?\s*(?:(\d+)s)?$/.exec(text.trim());
  if (!match || !text.trim()) return null;
  const [d, h, m, s] = match.slice(1).map((each) => Number(each ?? 0));
  return d * 86400 + h * 3600 + m * 60 + s || null;
}
