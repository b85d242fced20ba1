// Bundles the extension and its webview into dist/. Nothing of node_modules ends up in it.
import { copyFileSync, mkdirSync } from "node:fs";

import { build } from "esbuild";

const common = { bundle: true, minify: true, sourcemap: false, logLevel: "warning", target: "es2022" };

mkdirSync("dist", { recursive: true });
await build({
  ...common,
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  platform: "node",
  format: "cjs",
  external: ["vscode"],
});
await build({ ...common, entryPoints: ["src/webview/main.ts"], outfile: "dist/webview.js", platform: "browser", format: "iife" });
copyFileSync("src/webview/webview.css", "dist/webview.css");
