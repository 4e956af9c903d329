// When waiting jobs start, for those that somebody looks at: an estimate runs the yard forward, so few are asked for.

import { SvelteMap } from "svelte/reactivity";
import { get } from "./api";

const FRESH_MS = 60_000;
const PAUSE_MS = 300;
const REST_MS = 700;

export class Etas {
  /** By label: by when, and whether that is likely rather than bound to be; null: nobody can say. */
  found = new SvelteMap<string, { atMs: number; likely: boolean } | null>();
  #asked = new Map<string, number>();
  #wanted: string[] = [];
  #busy = false;
  #rests = 0;

  /** What is looked at now, the most wanted first; asked for once the view has rested. */
  want(labels: string[]): void {
    const same = labels.join() === this.#wanted.join();
    this.#wanted = labels;
    if (same) return;
    clearTimeout(this.#rests);
    this.#rests = window.setTimeout(() => (this.#busy ? undefined : this.#run()), REST_MS);
  }

  stop(): void {
    clearTimeout(this.#rests);
    this.#wanted = [];
  }

  async #run(): Promise<void> {
    this.#busy = true;
    try {
      for (;;) {
        const label = this.#wanted.find((each) => Date.now() - (this.#asked.get(each) ?? 0) > FRESH_MS);
        if (label === undefined) return;
        this.#asked.set(label, Date.now());
        try {
          const reply = await get("/jobs/{id}/eta", { id: label });
          const half = reply.starts_by_ms?.p50 ?? null;
          const atMs = half ?? reply.bound_ms;
          this.found.set(label, atMs ? { atMs, likely: half !== null } : null);
        } catch {
          // It has started meanwhile, or is out of sight: its row says what there is to say.
          this.found.delete(label);
        }
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } finally {
      this.#busy = false;
    }
  }
}
