// The yard over HTTP, as the person that is signed in: one half of the session is a cookie, the other is kept here.

const KEY = "yard-page:" + location.pathname;

/** An answer that is not what was asked for: what is wrong, and what to do. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint = "",
    readonly errors: { field: string; detail: string }[] = [],
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
  let told: { detail?: string; hint?: string; errors?: { field: string; detail: string }[] } = {};
  try {
    told = await answer.json();
  } catch {
    // A proxy's answer has another form; its status says enough.
  }
  throw new Refused(answer.status, told.detail ?? `the yard answered ${answer.status}`, told.hint, told.errors);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send("api/v1" + path, { signal })).json();
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

export async function post<T>(
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
  method = "POST",
): Promise<T> {
  const init: RequestInit = { method, headers, signal };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...headers, "Content-Type": "application/json" };
  }
  return (await send("api/v1" + path, init)).json();
}

/** Trade a code for a session of this browser. */
export async function signIn(code: string): Promise<void> {
  const made = await post<{ key: string }>("/login/browser", { code, path: base });
  keep(made.key);
}

/** The same with a token, which is not kept. */
export async function signInWithToken(token: string): Promise<void> {
  const answer = await send("api/v1/login/codes", { method: "POST" }, token);
  await signIn((await answer.json()).code);
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
