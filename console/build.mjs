// Builds gateway/console/static/vendor from npm's packages, byte for byte the same each time:
// the versions are locked, and nothing of this machine goes in. Each file of entries/ names what
// the pages use of a library; LICENSES.txt has the licence of every package that went in.
import { build } from "esbuild";
import { readFile, readdir, writeFile } from "node:fs/promises";

const OUT = new URL("../gateway/console/static/vendor/", import.meta.url).pathname;
const HERE = new URL("./", import.meta.url).pathname;

const entries = (await readdir(`${HERE}entries`)).sort();
const built = await build({
  absWorkingDir: HERE,
  entryPoints: entries.map((name) => `entries/${name}`),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none", // they stand in LICENSES.txt
  charset: "utf8",
  metafile: true,
  outdir: OUT,
});

const packages = new Set();
for (const input of Object.keys(built.metafile.inputs)) {
  const [, name] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input) ?? [];
  if (name) packages.add(name);
}
const licences = [];
for (const name of [...packages].sort()) {
  const folder = `${HERE}node_modules/${name}/`;
  const { version, license } = JSON.parse(await readFile(`${folder}package.json`));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? await readFile(folder + file, "utf8") : "";
  licences.push(`${name} ${version} (${license})\n\n${text.trim()}\n`);
}
await writeFile(`${OUT}LICENSES.txt`, licences.join(`\n${"-".repeat(72)}\n\n`));
