import { svelte } from "@sveltejs/vite-plugin-svelte";
import { readdirSync, readFileSync } from "node:fs";
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

// What other people wrote and is in the console goes with their licences: one file beside the page, for each package
// of which something is bundled.
const licences: Plugin = {
  name: "licences",
  generateBundle(_options, bundle) {
    const folders = new Map<string, string>();
    for (const part of Object.values(bundle)) {
      if (part.type !== "chunk") continue;
      for (const id of Object.keys(part.modules)) {
        const found = /(\/.*\/node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(id);
        if (found) folders.set(found[2], found[1]);
      }
    }
    const texts = [...folders].sort(([one], [other]) => (one < other ? -1 : 1)).map(([name, folder]) => {
      const about = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
      const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
      if (!file) this.error(`${name} is bundled and has no licence file`);
      return `${name} ${about.version} (${about.license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
    });
    const head = "The console holds code of these packages, under their own licences.\n";
    this.emitFile({ type: "asset", fileName: "licences.txt", source: [head, ...texts].join(`\n${"-".repeat(80)}\n\n`) });
  },
};

export default defineConfig({
  plugins: [xterm, licences, svelte()],
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
