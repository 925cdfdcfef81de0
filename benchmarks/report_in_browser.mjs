// Opens report pages in headless Chromium and fails if one is slow, heavy, reaches for the network,
// throws, or breaks an accessibility rule of axe-core at level serious or above.
//
//   npm install --no-save axe-core puppeteer-core
//   node benchmarks/report_in_browser.mjs report/report.html [more pages] [--shots DIR]
//
// CHROMIUM=/path names another browser. --shots writes screenshots of the whole page, light, dark
// and at the width of a telephone, and the printed page as PDF.

import { mkdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const LARGEST = 5e6; // bytes: a page that still goes by mail
const SLOWEST = 2000; // milliseconds from opening to loaded
const require = createRequire(join(process.cwd(), "package.json"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const args = process.argv.slice(2);
const at = args.indexOf("--shots");
const shots = at < 0 ? null : args.splice(at, 2)[1];
if (shots) mkdirSync(shots, { recursive: true });

async function look(browser, file, scheme, width) {
  const page = await browser.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(`script: ${error}`));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) problems.push(`network: ${request.url()}`);
  });
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  const start = performance.now();
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  const loaded = Math.round(performance.now() - start);
  if (loaded > SLOWEST) problems.push(`slow: ${loaded} ms, allowed ${SLOWEST}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 1) problems.push(`wide: ${wide} px beyond a window of ${width}`);
  await page.evaluate(axe); // as an expression: the page's own policy lets no other script in
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  for (const { id, impact, nodes } of violations) {
    const line = `${id} (${impact}, ${nodes.length} places): ${nodes[0].html.slice(0, 100)}`;
    if (["serious", "critical"].includes(impact)) problems.push(line);
    else console.log(`  note ${line}`);
  }
  if (shots) {
    const stem = join(shots, `${basename(file, ".html")}-${scheme}-${width}`);
    await page.screenshot({ path: `${stem}.png`, fullPage: true });
    if (scheme === "light" && width > 1000) await page.pdf({ path: `${stem}.pdf`, format: "A4" });
  }
  await page.close();
  console.log(`  ${scheme} ${width} px: ${loaded} ms, ${violations.length} findings of axe`);
  return problems;
}

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
let failed = args.length === 0;
if (failed) console.error("name one or more HTML files");
for (const name of args) {
  const file = resolve(name);
  const { size } = statSync(file);
  console.log(`${name}: ${(size / 1e6).toFixed(2)} MB`);
  const problems = size > LARGEST ? [`heavy: ${size} bytes, allowed ${LARGEST}`] : [];
  for (const [scheme, width] of [["light", 1200], ["dark", 1200], ["light", 390]])
    problems.push(...(await look(browser, file, scheme, width)));
  for (const problem of problems) console.log(`  FAIL ${problem}`);
  failed ||= problems.length > 0;
}
await browser.close();
process.exit(failed ? 1 : 0);
