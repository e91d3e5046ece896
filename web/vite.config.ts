import { readFileSync, readdirSync, existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

// The console's files have stable names: they are committed, and a rebuild is compared with them.
// Nothing is inlined, no polyfill is injected: the page's policy allows scripts from files only.

const packages = new Set<string>();

/** Remembers the packages whose code is used, by the page or by its worker. */
function used(): Plugin {
  return {
    name: "used",
    moduleParsed({ id }) {
      const found = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id);
      if (found?.[1]) packages.add(found[1]);
    },
  };
}

/** Lists the licences of every package whose code is in a chunk. */
function notice(): Plugin {
  return {
    name: "notice",
    generateBundle() {
      const parts = [...packages].sort().map((name) => {
        const folder = join(import.meta.dirname, "node_modules", name);
        const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const texts = existsSync(folder)
          ? readdirSync(folder).filter((file) => /^(licen[cs]e|notice)/i.test(file)).sort()
          : [];
        const text = texts.map((file) => readFileSync(join(folder, file), "utf8").trim());
        return [`${name} ${version} (${license})`, ...text].join("\n\n");
      });
      const head = "The console contains code of these packages.";
      this.emitFile({
        type: "asset",
        fileName: "NOTICE.txt",
        source: [head, ...parts].join(`\n\n${"-".repeat(80)}\n\n`) + "\n",
      });
    },
  };
}

const names = {
  entryFileNames: "[name].js",
  chunkFileNames: "[name].js",
  assetFileNames: "[name][extname]",
};

export default defineConfig({
  base: "./",
  publicDir: "public",
  plugins: [used(), notice()],
  worker: {
    format: "es",
    plugins: () => [used()],
    rolldownOptions: { output: { ...names, entryFileNames: "arrow-worker.js" } },
  },
  build: {
    outDir: "../server/console",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    rolldownOptions: { input: { app: "index.html" }, output: names },
  },
});
