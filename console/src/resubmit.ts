// The request that would submit a job again, with every field that it has; a remedy changes some of them.

import { call, get } from "./api";
import type { RequestReply } from "./wire";

export type Fields = RequestReply["request"];

export async function requestOf(label: string): Promise<Fields> {
  return (await get("/jobs/{id}/request", { id: label })).request;
}

/** A key of our own for one submission: sent twice, it is taken once. */
export function onceKey(): string {
  return crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
}

export async function submit(request: Fields, key = onceKey()): Promise<string> {
  return (await call("POST /jobs", {}, request, { headers: { "Idempotency-Key": key } })).label;
}

/** Submit a job with some fields changed; the old one goes once the new one is accepted. */
export async function submitInstead(label: string, changed: Fields): Promise<string> {
  const made = await submit({ ...(await requestOf(label)), ...changed });
  await call("POST /jobs/{id}/cancel", { id: label });
  return made;
}
