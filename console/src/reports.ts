// Reports that have no page of their own have a table; what is said here of some of them puts columns in order. Tenants
// and Money have pages, and stand here for their place among the others.

import type { Place } from "./router.svelte";

export type Known = { title: string; group: string; columns?: string[] };

export const REPORTS: Record<string, Known> = {
  nodes: { title: "Nodes", group: "fleet", columns: ["name", "cluster", "pool", "rack", "state", "gpu_model", "gpus", "gpus_free", "cpus_free", "memory_mib_free", "jobs", "why"] },
  gpus: { title: "GPUs", group: "fleet", columns: ["node", "cluster", "gpu", "gpu_model", "busy_pct", "memory_used_mib", "memory_mib", "power_w", "temperature_c", "price_micro_usd_h", "jobs"] },
  topology: { title: "Links", group: "fleet" },
  mig: { title: "Slices", group: "fleet" },
  doctor: { title: "Fences", group: "fleet" },
  tenants: { title: "Tenants", group: "tenants" },
  share: { title: "Shares", group: "tenants", columns: ["path", "weight", "share_ppm", "used_ppm", "yard_ppm", "running", "waiting", "amounts"] },
  budgets: { title: "Budgets", group: "tenants" },
  waits: { title: "Waits", group: "tenants" },
  cost: { title: "Money", group: "money" },
  "cost/statement": { title: "Statement", group: "money", columns: ["part", "name", "charged_gpu_hours", "used_gpu_hours", "wasted_gpu_hours", "energy_kwh", "price_micro_usd_h", "charged_micro_usd", "wasted_micro_usd"] },
  "cost/savings": { title: "Savings", group: "money" },
  efficiency: { title: "Efficiency", group: "money" },
  audit: { title: "Audit", group: "", columns: ["at_ms", "who", "what", "about", "tenant"] },
};

/** The report that a place stands for; empty: none. */
export function reportOf({ page, rest }: Place): string {
  const name = rest ? `${page}/${rest}` : page;
  return name in REPORTS ? name : "";
}

/** The reports beside one, for a row of links. */
export function beside(name: string): [string, string][] {
  const { group } = REPORTS[name];
  return group ? Object.entries(REPORTS).filter(([, each]) => each.group === group).map(([key, each]) => [key, each.title]) : [];
}
