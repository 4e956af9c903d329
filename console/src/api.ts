// The yard over HTTP, as the person that is signed in: one half of the session is a cookie, the other is kept here.

import type { Bodies, Fault, ProblemReply, Replies } from "./wire";

const KEY = "yard-page:" + location.pathname;

/** An answer that is not what was asked for: what is wrong, and what to do. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint = "",
    readonly errors: Fault[] = [],
  ) {
    super(message);
  }
}

/** Statuses of a question that the yard itself has not answered: 0 for none at all, the others are a proxy's. */
export const UNANSWERED = [0, 502, 503, 504];

/** The folder that the page is in: everything is asked for below it. */
export const base = location.pathname.replace(/[^/]*$/, "");

/** Told with every answer of the yard, and with every question that had none. */
export const heard = { yard: (_answers: boolean): void => {} };

// The key that this page goes by. All pages of a browser have one cookie: if somebody signs in on another page, this
// one must not go on in their name without saying so.
let own = localStorage.getItem(KEY) ?? "";

export function hasKey(): boolean {
  return own !== "";
}

/** Whether another page of this browser was signed in or out since this one was. */
export function keyChanged(): boolean {
  return own !== (localStorage.getItem(KEY) ?? "");
}

/** Go by the key that the browser has now; whether there is one. */
export function takeKey(): boolean {
  own = localStorage.getItem(KEY) ?? "";
  return hasKey();
}

export function whenKeyChanges(tell: () => void): void {
  addEventListener("storage", (event) => (event.key === KEY || event.key === null) && keyChanged() && tell());
}

export function forgetKey(): void {
  if (!keyChanged()) localStorage.removeItem(KEY);
  own = "";
}

function keep(key: string): void {
  own = key;
  localStorage.setItem(KEY, key);
}

async function send(path: string, init: RequestInit = {}, token = ""): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  else if (hasKey()) headers.set("Yard-Page", own);
  let answer: Response;
  try {
    answer = await fetch(base + path, { ...init, headers, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    heard.yard(false);
    throw new Refused(0, "the yard does not answer", "The page asks again by itself; jobs go on without the yard.");
  }
  heard.yard(!UNANSWERED.includes(answer.status));
  if (answer.ok) return answer;
  let told: Partial<ProblemReply> = {};
  try {
    told = await answer.json();
  } catch {
    // A proxy's answer has another form; its status says enough.
  }
  throw new Refused(answer.status, told.detail ?? `the yard answered ${answer.status}`, told.hint, told.errors);
}

type Values = Record<string, string | number | null | undefined>;
type Calls = keyof Replies;
type Got<Call> = Call extends `GET ${infer Path}` ? Path : never;
/** What can be asked for, as the description of the API has it: with the names of values in braces. */
export type Gets = Got<Calls>;
export type Reply<Path extends Gets> = Replies[`GET ${Path}`];
type Body<Call extends Calls> = Call extends keyof Bodies ? Bodies[Call] : undefined;

/** A path with values in their places, and the others as the query; one that is empty is left out. */
function address(path: string, values: Values): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (path.includes(`{${name}}`)) path = path.split(`{${name}}`).join(encodeURIComponent(value ?? ""));
    else if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  return "api/v1" + path + (query.size ? `?${query}` : "");
}

export async function get<Path extends Gets>(path: Path, values: Values = {}, signal?: AbortSignal): Promise<Reply<Path>> {
  return (await send(address(path, values), { signal })).json();
}

/** A WebSocket below the page. It cannot have headers: the key goes with the protocols that are offered. */
export function socket(path: string): WebSocket {
  const address = new URL(base + "api/v1" + path, location.href);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const made = new WebSocket(address, ["yard", `yard-page.${own}`]);
  made.binaryType = "arraybuffer";
  return made;
}

/** A piece of a log, and the cursor where the next one begins. */
export async function text(path: string): Promise<{ text: string; next: string }> {
  const answer = await send("api/v1" + path);
  return { text: await answer.text(), next: answer.headers.get("x-next-cursor") ?? "" };
}

/** Ask for something to be done: the method and the path, the values of the path, and the body if it takes one. */
export async function call<Call extends Exclude<Calls, `GET ${string}`>>(
  what: Call,
  values: Values = {},
  body?: Body<Call>,
  { headers = {}, signal }: { headers?: Record<string, string>; signal?: AbortSignal } = {},
): Promise<Replies[Call]> {
  const [method, path] = what.split(" ");
  const init: RequestInit = { method, headers, signal };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...headers, "Content-Type": "application/json" };
  }
  return (await send(address(path, values), init)).json();
}

/** Trade a code for a session of this browser. */
export async function signIn(code: string): Promise<void> {
  const made = await call("POST /login/browser", {}, { code, path: base });
  keep(made.key);
}

/** The same with a token, which is not kept. */
export async function signInWithToken(token: string): Promise<void> {
  const answer = await send("api/v1/login/codes", { method: "POST" }, token);
  const made: Replies["POST /login/codes"] = await answer.json();
  await signIn(made.code);
}

export type Told = { event: string; data: any; id: string };

/** Follow a stream of events until it ends; throws when it breaks. */
export async function follow(path: string, tell: (told: Told) => void, signal: AbortSignal): Promise<void> {
  const answer = await send("api/v1" + path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const told: Told = { event: "message", data: null, id: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) told.event = line.slice(7);
        else if (line.startsWith("data: ")) told.data = JSON.parse(line.slice(6));
        else if (line.startsWith("id: ")) told.id = line.slice(4);
      }
      rest = rest.slice(end + 2);
      if (told.data !== null) tell(told);
    }
  }
}
