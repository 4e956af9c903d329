// Replies that are asked for again and again while somebody looks at them.

import { get } from "./api";
import { session } from "./session.svelte";

const EVERY_MS = 5000;

export class Asked<Reply> {
  reply = $state.raw<Reply | null>(null);
  error = $state.raw<unknown>(null);

  /** Ask until the function that is returned is called. An answer is waited for before the next question. */
  watch(path: string): () => void {
    const stop = new AbortController();
    let timer = 0;
    const look = async () => {
      try {
        this.reply = await get<Reply>(path, stop.signal);
        this.error = null;
        session.away = false;
      } catch (problem) {
        if (stop.signal.aborted) return;
        session.heed(problem);
        this.error = problem;
      }
      if (!stop.signal.aborted) timer = window.setTimeout(look, EVERY_MS);
    };
    void look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }
}
