// Who is signed in, whether the yard answers, and questions before large gestures.

import { call, forgetKey, get, heard, keyChanged, Refused, takeKey, whenKeyChanges } from "./api";
import { learn } from "./colours";
import { dropDrafts } from "./drafts";
import type { MeReply } from "./wire";

export type Question = { title: string; text: string; yes: string; bad: boolean; answer: (yes: boolean) => void };

const LOOK_MS = 2000;

class Session {
  me = $state.raw<MeReply | null>(null);
  state = $state<"asking" | "in" | "out">("asking");
  why = $state("");
  away = $state(false);
  /** How often the yard came back: what was asked in vain is asked again. */
  returns = $state(0);
  said = $state<{ text: string; bad: boolean } | null>(null);
  question = $state.raw<Question | null>(null);
  now = $state(Date.now());
  #quiet = 0;

  constructor() {
    setInterval(() => (this.now = Date.now()), 1000);
    heard.yard = (answers) => this.#hear(answers);
    whenKeyChanges(() => void this.#follow());
  }

  async start(): Promise<void> {
    try {
      this.me = await get("/me");
      this.state = "in";
      const found = await get("/tenants");
      learn(found.tenants.map((each) => each.tenant));
    } catch (error) {
      this.heed(error);
      if (this.state === "asking") setTimeout(() => this.start(), 2000);
    }
  }

  /** What a failed request means for the whole page; other failures are the page's own to show. */
  heed(error: unknown): void {
    if (!(error instanceof Refused)) return;
    // Of several requests that were under way, the first says why.
    if (error.status !== 401 || this.state === "out") return;
    if (keyChanged()) void this.#follow();
    else this.#leave(this.state === "in" ? error.message : "");
  }

  #leave(why: string): void {
    forgetKey();
    this.why = why;
    this.state = "out";
    this.me = null;
    this.question = null;
    dropDrafts();
  }

  #hear(answers: boolean): void {
    if (answers !== this.away) return;
    this.away = !answers;
    if (answers) this.returns += 1;
    else void this.#look();
  }

  /** Some pages ask nothing by themselves: somebody has to look whether the yard is back. */
  async #look(): Promise<void> {
    while (this.away && this.state === "in") {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      try {
        await get("/me");
      } catch (error) {
        this.heed(error);
      }
    }
  }

  /** Another page of this browser was signed in or out: so is this one. */
  async #follow(): Promise<void> {
    if (!takeKey()) return this.#leave("This browser was signed out on another page.");
    const before = this.me?.user;
    try {
      this.me = await get("/me");
      this.state = "in";
    } catch {
      // In whose name this page goes on has to be known first.
      this.state = "asking";
      await this.start();
    }
    if (before === undefined || !this.me || this.me.user === before) return;
    dropDrafts();
    this.question = null;
    this.say(`This browser is now signed in as ${this.me.user}: somebody did so on another page.`, true);
  }

  /** Whether the server's table of rights lets the viewer do this to something of that tenant. */
  may(action: string, tenant = "", own = false): boolean {
    return (this.me?.allowed ?? []).some(
      (place) =>
        (place.actions.includes(action) || (own && place.own_actions.includes(action))) &&
        (!place.tenant || tenant === place.tenant || tenant.startsWith(place.tenant + "/")),
    );
  }

  /** Whether there is anything at all to which they may do it. */
  mayEver(action: string): boolean {
    return (this.me?.allowed ?? []).some((place) => [...place.actions, ...place.own_actions].includes(action));
  }

  /** The same for a job: what they may do to their own is more. */
  mayTo(action: string, job: { user: string; tenant: string }): boolean {
    return this.may(action, job.tenant, job.user === this.me?.user);
  }

  say(text: string, bad = false): void {
    this.said = { text, bad };
    clearTimeout(this.#quiet);
    this.#quiet = window.setTimeout(() => (this.said = null), bad ? 12000 : 5000);
  }

  complain(error: unknown): void {
    this.heed(error);
    if (error instanceof Refused) this.say(error.hint ? `${error.message}. ${error.hint}` : error.message, true);
    else this.say(String(error), true);
  }

  ask(title: string, text: string, yes: string, bad = false): Promise<boolean> {
    return new Promise((resolve) => {
      this.question = {
        title,
        text,
        yes,
        bad,
        answer: (given) => {
          this.question = null;
          resolve(given);
        },
      };
    });
  }

  async signOut(): Promise<void> {
    try {
      await call("POST /logout");
    } catch (error) {
      this.heed(error);
    }
    this.#leave("");
  }
}

export const session = new Session();
