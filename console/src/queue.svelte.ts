// The live jobs, kept up to date over /changes for as long as somebody looks.

import { follow, get, Refused } from "./api";
import { session } from "./session.svelte";

export type Row = {
  id: number;
  label: string;
  name: string;
  tenant: string;
  user: string;
  class: string;
  state: string;
  attempt_state: string;
  gpus: number;
  nodes: string;
  submitted_ms: number;
  started_ms: number;
  time_limit_s: number | null;
  reason: string;
};
type Listed = { seq: number; running: number; waiting: number; set_aside: number; columns: string[]; rows: any[][] };

const MOST = 20_000;
const BACK_MS = 1500;

class LiveQueue {
  rows = $state.raw<Row[]>([]);
  running = $state(0);
  waiting = $state(0);
  loaded = $state(false);
  live = $state(false);
  #byId = new Map<number, Row>();
  #place = new Map<number, number>();
  #columns: string[] = [];
  #users = 0;
  #stop: AbortController | null = null;
  #drawn = 0;
  #tookMs = 0;

  /** Follow until the function that is returned is called. */
  watch(): () => void {
    if (this.#users++ === 0) {
      this.#stop = new AbortController();
      void this.#run(this.#stop.signal);
    }
    return () => {
      if (--this.#users === 0) this.#stop?.abort();
    };
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && session.state === "in") {
      try {
        const seq = await this.#load(signal);
        session.away = false;
        this.live = true;
        await follow(`/changes?after=${seq}`, (told) => this.#heed(told.event, told.data), signal);
        // A stream that ends by itself is asked for again: the session may have ended, which /me tells.
        await get("/me", signal);
      } catch (error) {
        if (signal.aborted) return;
        this.live = false;
        session.heed(error);
        if (!(error instanceof Refused)) session.away = true;
      }
      await new Promise((resolve) => setTimeout(resolve, BACK_MS));
    }
  }

  async #load(signal: AbortSignal): Promise<number> {
    const found = await get<Listed>(`/queue?limit=${MOST}`, signal);
    this.#columns = found.columns;
    this.#byId = new Map(found.rows.map((row) => [row[0], this.#row(row)]));
    this.#place = new Map(found.rows.map((row, at) => [row[0], at]));
    this.running = found.running;
    this.waiting = found.waiting;
    this.loaded = true;
    this.#publish();
    return found.seq;
  }

  #row(values: any[]): Row {
    return Object.fromEntries(this.#columns.map((name, at) => [name, values[at]])) as Row;
  }

  #heed(event: string, data: any): void {
    if (event === "start") this.#columns = data.columns;
    else if (event === "again") this.#stopAndStart();
    else if (event === "rows") {
      for (const values of data.rows) {
        const row = this.#row(values);
        this.#byId.set(row.id, row);
        if (!this.#place.has(row.id)) this.#place.set(row.id, MOST + row.id);
      }
      for (const id of data.gone) {
        this.#byId.delete(id);
        this.#place.delete(id);
      }
      this.running = data.running;
      this.waiting = data.waiting;
      this.#soon();
    } else if (event === "order") {
      let at = MOST;
      for (const run of [...data.waiting, ...data.set_aside]) {
        const [first, last] = Array.isArray(run) ? run : [run, run];
        for (let id = first; id <= last; id++) this.#place.set(id, at++);
      }
      this.#soon();
    }
  }

  #stopAndStart(): void {
    this.#stop?.abort();
    this.#stop = new AbortController();
    void this.#run(this.#stop.signal);
  }

  /** Changes are shown together: after a tenth of a second, and for a twentieth of the time at most. */
  #soon(): void {
    if (!this.#drawn) this.#drawn = window.setTimeout(() => this.#publish(), Math.max(100, 20 * this.#tookMs));
  }

  #publish(): void {
    clearTimeout(this.#drawn);
    this.#drawn = 0;
    const began = performance.now();
    // From the order that was shown last, in which most of them still are: that is sorted quickly.
    const known = new Set<number>();
    const next: { row: Row; place: number }[] = [];
    const add = (row: Row) => {
      known.add(row.id);
      next.push({ row, place: row.state === "PENDING" ? (this.#place.get(row.id) ?? 0) : -1 });
    };
    for (const { id } of this.rows) {
      const row = this.#byId.get(id);
      if (row) add(row);
    }
    for (const row of this.#byId.values()) if (!known.has(row.id)) add(row);
    next.sort((a, b) => a.place - b.place || a.row.started_ms - b.row.started_ms || a.row.id - b.row.id);
    this.rows = next.map((each) => each.row);
    this.#tookMs = performance.now() - began;
  }
}

export const queue = new LiveQueue();
