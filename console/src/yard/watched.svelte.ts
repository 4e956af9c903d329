// What the page Yard looks at: the nodes often, what their GPUs do and how they are cut less often.

import { get } from "../api";
import { again } from "../asked.svelte";
import { session } from "../session.svelte";
import type { GpuReply, OverviewReply } from "../wire";
import { keyOf, type Known, type Slice } from "./map";

const EVERY_MS = 2000;
const USES_EVERY = 5;

export class WatchedYard {
  overview = $state.raw<OverviewReply | null>(null);
  known = $state.raw<Known>({ uses: new Map(), slices: new Map() });
  uses = $state.raw<GpuReply[]>([]);
  error = $state.raw<unknown>(null);
  #turn = 0;

  /** Look until the function that is returned is called. */
  watch(): () => void {
    return again(() => this.#look(), EVERY_MS);
  }

  async #look(): Promise<void> {
    try {
      this.overview = await get("/overview");
      if (this.#turn++ % USES_EVERY === 0) await this.#uses();
      this.error = null;
    } catch (problem) {
      session.heed(problem);
      this.error = problem;
    }
  }

  async #uses(): Promise<void> {
    const [found, mig] = await Promise.all([get("/gpus"), get("/mig")]);
    const uses = new Map(found.gpus.map((each) => [keyOf(each.cluster, each.node, each.gpu), each]));
    const slices = new Map<string, Slice[]>();
    for (const node of mig.nodes)
      for (const [gpu, profile, start, job] of node.slices) {
        const key = keyOf(node.cluster, node.node, gpu);
        const [from, part] = [start / node.slots, (node.sizes[profile] ?? 1) / node.slots];
        slices.set(key, [...(slices.get(key) ?? []), { profile, from, part, job }]);
      }
    this.uses = found.gpus;
    this.known = { uses, slices };
  }
}
