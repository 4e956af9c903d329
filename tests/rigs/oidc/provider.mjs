// A real OpenID Connect provider for tests: node provider.mjs PACKAGE PORT. Whoever logs in is who they say.
const [, , folder, port] = process.argv;
const { default: Provider } = await import(`${folder}/lib/index.js`);

const groups = { daemon: ["ml", "everybody"], wanda: ["ml"], bin: ["nobody-knows"] };
const client = (client_id) => ({
  client_id,
  application_type: "native",
  redirect_uris: ["http://127.0.0.1/callback", "http://127.0.0.1/"],
  token_endpoint_auth_method: "none",
  grant_types: ["authorization_code"],
  response_types: ["code"],
});
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [client("gpuyard"), client("another"), client("short")],
  ttl: { IdToken: (_ctx, _token, { clientId }) => (clientId === "short" ? 1 : 3600) },
  claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
  conformIdTokenClaims: false,
  cookies: { keys: ["only-for-tests"] },
  pkce: { required: () => true },
  findAccount: (_ctx, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      preferred_username: id,
      groups: groups[id] ?? [],
      email: `${id}@example.org`,
      email_verified: true,
    }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
