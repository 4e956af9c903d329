import { svelte } from "@sveltejs/vite-plugin-svelte";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

// xterm.js takes a document as an option and still asks for the page's own in places: within it, there is no other.
const xterm: Plugin = {
  name: "xterm-document",
  transform(code, id) {
    if (!id.includes("@xterm/xterm/lib/xterm.mjs")) return;
    const own = fileURLToPath(new URL("src/terminal/document.ts", import.meta.url));
    return { code: `import { policyDocument as document } from ${JSON.stringify(own)};\n${code.replaceAll("window.document", "document")}`, map: null };
  },
};

export default defineConfig({
  plugins: [xterm, svelte()],
  // Every address is relative: the console works below any path.
  base: "./",
  build: {
    target: "es2022",
    assetsDir: "assets",
    // Nothing is put into the page itself: its policy forbids it.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
