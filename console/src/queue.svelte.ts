// The live jobs, kept up to date over /changes for as long as somebody looks.

import { untrack } from "svelte";
import { follow, get } from "./api";
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
/** Whether a job is out of sight: then it has its id, state and GPUs, its texts are empty and its times are 0. */
export function hidden(row: Row): boolean {
  return !row.submitted_ms;
}

const MOST = 20_000;
const BEHIND = 2 ** 40;
const BACK_MS = 1500;
/** Between two looks at what has changed, so that what is read stands still for long enough. */
const SHOWN_MS = 250;

class LiveQueue {
  rows = $state.raw<Row[]>([]);
  /** Those that the rows are of, by name. */
  tenants = $state.raw<string[]>([]);
  running = $state(0);
  waiting = $state(0);
  /** On hold, or behind other jobs that have to end first. */
  aside = $state(0);
  loaded = $state(false);
  live = $state(false);
  #byId = new Map<number, Row>();
  /** Where waiting jobs stand; one without a place stands behind the others. */
  #place = new Map<number, number>();
  /** Rows that came, changed or went since rows were shown last. */
  #touched = new Set<number>();
  #reordered = false;
  #counts: [running: number, waiting: number, aside: number] = [0, 0, 0];
  #columns: string[] = [];
  #viewer = "";
  #users = 0;
  #stop: AbortController | null = null;
  #due = 0;
  #shown = 0;

  /** Follow until the function that is returned is called. */
  watch(): () => void {
    // Rows are for the eyes of one person.
    untrack(() => this.#viewer !== session.me?.user && this.#forget());
    if (this.#users++ === 0 || this.#stop?.signal.aborted) {
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
        this.live = true;
        await follow(`/changes?after=${seq}`, (told) => this.#heed(told.event, told.data), signal);
        // A stream that ends by itself is asked for again: the session may have ended, which /me tells.
        await get("/me", {}, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.live = false;
        // A stream that breaks may be only that: whether the yard is away shows when it is asked for the rows again.
        session.heed(error);
      }
      await new Promise((resolve) => setTimeout(resolve, BACK_MS));
    }
  }

  async #load(signal: AbortSignal): Promise<number> {
    const found = await get("/queue", { limit: MOST }, signal);
    this.#columns = found.columns;
    const rows = found.rows.map((values) => this.#row(values));
    // Those that are shown and went while nobody followed are touched too.
    this.#touched = new Set(this.rows.map((row) => row.id));
    this.#byId = new Map(rows.map((row) => [row.id, row]));
    this.#place = new Map(rows.filter((row) => row.state === "PENDING").map((row, at) => [row.id, at]));
    for (const { id } of rows) this.#touched.add(id);
    this.#counts = [found.running, found.waiting, found.set_aside];
    this.#reordered = true;
    this.loaded = true;
    this.#show();
    return found.seq;
  }

  #row(values: any[]): Row {
    const row: Record<string, unknown> = {};
    for (let at = 0; at < this.#columns.length; at++) row[this.#columns[at]] = values[at];
    return row as Row;
  }

  #heed(event: string, data: any): void {
    if (event === "start") this.#columns = data.columns;
    else if (event === "again") this.#stopAndStart();
    else if (event === "rows") {
      for (const values of data.rows) {
        const row = this.#row(values);
        this.#byId.set(row.id, row);
        this.#touched.add(row.id);
      }
      for (const id of data.gone) {
        this.#byId.delete(id);
        this.#place.delete(id);
        this.#touched.add(id);
      }
      this.#counts = [data.running, data.waiting, data.set_aside];
      this.#soon();
    } else if (event === "order") {
      let at = 0;
      this.#place.clear();
      for (const run of [...data.waiting, ...data.set_aside]) {
        const [first, last] = Array.isArray(run) ? run : [run, run];
        for (let id = first; id <= last; id++) this.#place.set(id, at++);
      }
      this.#reordered = true;
      this.#soon();
    }
  }

  #forget(): void {
    this.#stop?.abort();
    this.#viewer = session.me?.user ?? "";
    this.#byId.clear();
    this.#place.clear();
    this.#touched.clear();
    this.#counts = [0, 0, 0];
    this.rows = [];
    this.loaded = this.live = false;
    this.#show();
  }

  #stopAndStart(): void {
    this.#stop?.abort();
    this.#stop = new AbortController();
    void this.#run(this.#stop.signal);
  }

  /** Changes are shown together. */
  #soon(): void {
    if (!this.#due) this.#due = window.setTimeout(() => this.#show(), Math.max(0, this.#shown + SHOWN_MS - performance.now()));
  }

  #placeOf(row: Row): number {
    return this.#place.get(row.id) ?? BEHIND + row.id;
  }

  #before(a: Row, b: Row): number {
    const [runs, others] = [a.state !== "PENDING", b.state !== "PENDING"];
    if (runs !== others) return runs ? -1 : 1;
    if (runs) return a.started_ms - b.started_ms || a.id - b.id;
    return this.#placeOf(a) - this.#placeOf(b) || a.id - b.id;
  }

  /** What was touched goes to its place among the rows that were not, which are in order already. */
  #show(): void {
    clearTimeout(this.#due);
    this.#due = 0;
    this.#shown = performance.now();
    [this.running, this.waiting, this.aside] = this.#counts;
    const touched = this.#touched;
    const still = this.rows.filter((row) => !touched.has(row.id));
    const come: Row[] = [];
    for (const id of touched) {
      const row = this.#byId.get(id);
      if (row) come.push(row);
    }
    const order = (a: Row, b: Row) => this.#before(a, b);
    if (this.#reordered) this.rows = [...still, ...come].sort(order);
    else if (touched.size) this.rows = merged(still, come.sort(order), order);
    if (touched.size) this.#name();
    this.#touched = new Set();
    this.#reordered = false;
  }

  #name(): void {
    const found = new Set<string>();
    for (const { tenant } of this.rows) if (tenant) found.add(tenant);
    if (found.size !== this.tenants.length || this.tenants.some((each) => !found.has(each))) this.tenants = [...found].sort();
  }
}

/** Two lists in order as one. Few come: each looks for its place by halves, and those between are taken as they are. */
function merged(still: Row[], come: Row[], order: (a: Row, b: Row) => number): Row[] {
  const all: Row[] = [];
  let from = 0;
  for (const row of come) {
    let [low, high] = [from, still.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order(still[middle], row) < 0) low = middle + 1;
      else high = middle;
    }
    while (from < low) all.push(still[from++]);
    all.push(row);
  }
  while (from < still.length) all.push(still[from++]);
  return all;
}

export const queue = new LiveQueue();
