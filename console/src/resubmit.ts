// The request that would submit a job again, with every field that it has; a remedy changes some of them.

import { get, post } from "./api";

export type Fields = Record<string, any>;

export async function requestOf(label: string): Promise<Fields> {
  return (await get<{ request: Fields }>(`/jobs/${encodeURIComponent(label)}/request`)).request;
}

/** A key of our own for one submission: sent twice, it is taken once. */
export function onceKey(): string {
  return crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
}

export async function submit(request: Fields, key = onceKey()): Promise<string> {
  return (await post<{ label: string }>("/jobs", request, { "Idempotency-Key": key })).label;
}

/** Submit a job with some fields changed; the old one goes once the new one is accepted. */
export async function submitInstead(label: string, changed: Fields): Promise<string> {
  const made = await submit({ ...(await requestOf(label)), ...changed });
  await post(`/jobs/${encodeURIComponent(label)}/cancel`);
  return made;
}
