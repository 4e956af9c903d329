import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
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
