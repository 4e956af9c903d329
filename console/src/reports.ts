// Reports that have no page of their own have a table; what is said here of some of them puts columns in order. Tenants
// and Money have pages, and stand here for their place among the others.

import type { Gets, Reply } from "./api";
import type { Place } from "./router.svelte";

/** What is said of a report; columns and titles are of fields that it has. */
type Told<Field extends string> = { title: string; group: string; columns?: Field[]; titles?: { [name in Field]?: string }; note?: string; empty?: string };
export type Known = Told<string>;
type RowOf<Value> = Value extends (infer Row)[] ? (Row extends object ? Row : never) : never;
type Keys<Of> = Of extends object ? keyof Of & string : never;
/** The fields of a report and of its rows. */
type Fields<Of> = Keys<Of> | Keys<RowOf<Of[keyof Of]>>;
const NO_NODES = "This yard has no nodes yet. They are described in yard.yaml.";

const REPORTED = {
  nodes: { title: "Nodes", group: "fleet", columns: ["name", "cluster", "pool", "state", "gpu_model", "gpus", "gpus_free", "cpus_free", "memory_mib_free", "jobs", "why"], empty: NO_NODES },
  gpus: { title: "GPUs", group: "fleet", columns: ["node", "cluster", "gpu", "gpu_model", "busy_pct", "memory_used_mib", "memory_mib", "power_w", "temperature_c", "price_micro_usd_h", "jobs"], empty: NO_NODES },
  topology: { title: "Links", group: "fleet", note: "The links lead to GPU 0, 1, 2 and so on of the same node, in the words of nvidia-smi topo -m: NV is NVLink, X the GPU itself.", empty: NO_NODES },
  mig: { title: "Slices", group: "fleet", titles: { whole_gpus: "GPUs kept whole:" }, note: "Each size is shown with the number of memory slots that it takes.", empty: "No node has GPUs that can be cut into slices (MIG)." },
  doctor: { title: "Fences", group: "fleet" },
  tenants: { title: "Tenants", group: "tenants" },
  share: { title: "Shares", group: "tenants", columns: ["path", "weight", "share_ppm", "used_ppm", "yard_ppm", "running", "waiting", "amounts"], titles: { path: "tenant", fair: "fair share:", share_ppm: "due", used_ppm: "had", yard_ppm: "due of the yard", amounts: "GPUs" }, note: "Due and had are parts of the parent's share." },
  budgets: { title: "Budgets", group: "tenants", empty: "There is no budget that you may see. They are described under budgets in yard.yaml." },
  waits: { title: "Waits", group: "tenants", empty: "The yard recorded no waiting of tenants that you may see on these days. It records waiting every five minutes." },
  cost: { title: "Money", group: "money" },
  "cost/statement": { title: "Statement", group: "money", columns: ["part", "name", "charged_gpu_hours", "used_gpu_hours", "wasted_gpu_hours", "energy_kwh", "price_micro_usd_h", "charged_micro_usd", "wasted_micro_usd"] },
  "cost/savings": { title: "Savings", group: "money" },
  efficiency: { title: "Efficiency", group: "money", titles: { label: "job", gpus: "GPUs a task" }, empty: "No job that you may see has started yet." },
  audit: { title: "Audit", group: "", columns: ["at_ms", "who", "what", "about", "tenant"] },
} satisfies { [Path in Gets as Path extends `/${infer Name}` ? Name : never]?: Told<Fields<Reply<Path>>> };
export const REPORTS: Record<string, Known> = REPORTED;

/** The report that a place stands for; empty: none. */
export function reportOf({ page, rest }: Place): string {
  const name = rest ? `${page}/${rest}` : page;
  return Object.hasOwn(REPORTS, name) ? name : "";
}

/** The page among the main ones that a place belongs to. */
export function mainOf(place: Place): string {
  if (place.page === "job") return "queue";
  const group = REPORTS[reportOf(place)]?.group;
  return Object.entries(REPORTS).find(([, each]) => group && each.group === group)?.[0] ?? place.page;
}

/** The reports beside one, for a row of links. */
export function beside(name: string): [string, string][] {
  const { group } = REPORTS[name];
  return group ? Object.entries(REPORTS).filter(([, each]) => each.group === group).map(([key, each]) => [key, each.title]) : [];
}
