// Questions to the yard that are put again and again while somebody looks, or a moment after the last key.

import { untrack } from "svelte";
import { get, type Gets, type Reply } from "./api";
import { session } from "./session.svelte";

const EVERY_MS = 5000;
const PAUSE_MS = 400;

/** Do something now, and again so long after it is done each time, until the function that is returned is called. */
export function again(work: (signal: AbortSignal) => Promise<unknown>, everyMs: number): () => void {
  const stop = new AbortController();
  let timer = 0;
  const turn = async () => {
    await work(stop.signal);
    if (!stop.signal.aborted) timer = window.setTimeout(turn, everyMs);
  };
  untrack(() => void turn());
  return () => {
    stop.abort();
    clearTimeout(timer);
  };
}

/** Ask a moment after the last key. An answer about what was typed before is of no use: it is not waited for. */
export function soon(ask: (signal: AbortSignal) => Promise<void>, refused: (error: unknown) => void): () => void {
  // What was asked in vain is asked again once the yard is back.
  void session.returns;
  const stop = new AbortController();
  const timer = setTimeout(async () => {
    try {
      await ask(stop.signal);
    } catch (error) {
      if (stop.signal.aborted) return;
      session.heed(error);
      refused(error);
    }
  }, PAUSE_MS);
  return () => {
    clearTimeout(timer);
    stop.abort();
  };
}

export class Asked<Path extends Gets> {
  reply = $state.raw<Reply<Path> | null>(null);
  error = $state.raw<unknown>(null);
  #path: Path;
  #values: Record<string, string> = {};

  constructor(path: Path) {
    this.#path = path;
  }

  /** Ask until the function that is returned is called. */
  watch(values: Record<string, string> = {}, path: Path = this.#path): () => void {
    if (this.#path !== path || JSON.stringify(values) !== JSON.stringify(this.#values)) this.reply = this.error = null;
    [this.#path, this.#values] = [path, values];
    return again((signal) => this.ask(signal), EVERY_MS);
  }

  async ask(signal?: AbortSignal): Promise<void> {
    try {
      this.reply = await get(this.#path, this.#values, signal);
      this.error = null;
    } catch (problem) {
      if (signal?.aborted) return;
      session.heed(problem);
      this.error = problem;
    }
  }

  /** What there is to say about it: while the yard is away, what was told before stands, and the page says so. */
  get trouble(): unknown {
    return this.reply !== null && session.away ? null : this.error;
  }
}
