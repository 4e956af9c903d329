// Login at the yard's identity provider: authorization code with PKCE. The page may ask no other host than its own, so
// the browser goes to the provider as a whole and comes back here, and the yard trades the code.

import { base, call, get, Refused, signInWithToken } from "./api";

const KEPT = "yard-login:" + location.pathname;

type Begun = { state: string; verifier: string; nonce: string };

/** The host of the identity provider; empty: this yard has none. */
export async function provider(): Promise<string> {
  const ways = await get("/login");
  return ways.oidc ? new URL(ways.oidc.issuer).host : "";
}

/** Leave for the provider. */
export async function leave(): Promise<void> {
  if (!crypto.subtle)
    throw new Refused(0, "this browser logs in over https alone", "In a terminal, `yard open` signs it in.");
  const where = await get("/login/provider");
  const begun: Begun = { state: random(), verifier: random(), nonce: random() };
  sessionStorage.setItem(KEPT, JSON.stringify(begun));
  const hashed = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(begun.verifier));
  const address = new URL(where.url);
  const asked = {
    response_type: "code",
    client_id: where.client_id,
    redirect_uri: here(),
    scope: where.scopes,
    state: begun.state,
    nonce: begun.nonce,
    code_challenge: inWords(new Uint8Array(hashed)),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(asked)) address.searchParams.set(name, value);
  location.assign(address);
}

/** Sign in with what the provider sent the browser back with, if that is where it comes from. */
export async function comeBack(): Promise<void> {
  const told = new URLSearchParams(location.search);
  const begun: Begun | null = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  if (!told.has("state")) return;
  // The code leaves the address before anything else happens: it must not stay in the history.
  history.replaceState(null, "", base + "#/queue");
  sessionStorage.removeItem(KEPT);
  if (!begun || told.get("state") !== begun.state) throw new Refused(0, "the answer belongs to another login");
  const code = told.get("code");
  if (!code) throw new Refused(0, `not logged in: ${told.get("error_description") ?? told.get("error") ?? "no code"}`);
  const { verifier, nonce } = begun;
  const made = await call("POST /login/oidc/code", {}, { code, verifier, nonce, redirect_uri: here() });
  await signInWithToken(made.secret);
}

/** The page itself, without anything behind it: what is registered at the provider. */
function here(): string {
  return location.origin + base;
}

function random(): string {
  return inWords(crypto.getRandomValues(new Uint8Array(32)));
}

function inWords(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}
