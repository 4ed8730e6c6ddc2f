import { defineConfig } from "vite";

// The page lives below /ui/, whoever serves it. `npm run dev` sends what is not the page to a dashboard that runs:
// PLANFORM_DASHBOARD=http://127.0.0.1:PORT make ui-dev
const upstream = process.env.PLANFORM_DASHBOARD ?? "http://127.0.0.1:7443";

export default defineConfig({
  base: "/ui/",
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: "../src/planform/web/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the Content-Security-Policy lets no script or worker be a data: URL
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  server: {
    proxy: { "/ui/api": { target: upstream, changeOrigin: true, headers: { origin: upstream } } },
  },
});
