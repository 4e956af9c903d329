// Times, spans and amounts as people read them, in the viewer's own zone.

const DAY_MS = 86_400_000;
// Made once: one that is made for each text takes longer than all else in a row.
const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const DOLLARS = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD" });

export function span(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
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

export function dollars(amount: number | null | undefined): string {
  if (amount === null || amount === undefined) return "price not known";
  return DOLLARS.format(amount);
}

/** A text without characters that turn the direction of those around it, or that cannot be seen. */
export function plain(value: unknown): string {
  return String(value ?? "").replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    "\ufffd",
  );
}
