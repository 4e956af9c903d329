// Who is signed in, whether the yard answers, and questions before large gestures.

import { forgetKey, get, post, Refused } from "./api";
import { learn } from "./colours";

export type Me = {
  user: string;
  rights: { role: string; tenant: string }[];
  allowed: { tenant: string; actions: string[]; own_actions: string[] }[];
  home: string;
  auth: boolean;
  runs_as: string | null;
};
export type Question = { title: string; text: string; yes: string; bad: boolean; answer: (yes: boolean) => void };

class Session {
  me = $state.raw<Me | null>(null);
  state = $state<"asking" | "in" | "out">("asking");
  why = $state("");
  away = $state(false);
  said = $state<{ text: string; bad: boolean } | null>(null);
  question = $state.raw<Question | null>(null);
  now = $state(Date.now());
  #quiet = 0;

  constructor() {
    setInterval(() => (this.now = Date.now()), 1000);
  }

  async start(): Promise<void> {
    try {
      this.me = await get<Me>("/me");
      this.state = "in";
      this.away = false;
      const found = await get<{ tenants: { tenant: string }[] }>("/tenants");
      learn(found.tenants.map((each) => each.tenant));
    } catch (error) {
      this.heed(error);
      if (this.state === "asking") setTimeout(() => this.start(), 2000);
    }
  }

  /** What a failed request means for the whole page; other failures are the page's own to show. */
  heed(error: unknown): void {
    if (!(error instanceof Refused)) return;
    if (error.status === 401) {
      this.why = this.state === "in" ? error.message : "";
      this.state = "out";
      this.me = null;
      forgetKey();
    } else if (error.status === 0 || error.status === 502 || error.status === 503) this.away = true;
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
      await post("/logout");
    } catch (error) {
      this.heed(error);
    }
    forgetKey();
    this.state = "out";
    this.me = null;
  }
}

export const session = new Session();
