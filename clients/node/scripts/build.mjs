// Builds dist/esm and dist/cjs from src, each with its types. CommonJS is compiled from the same
// sources under a package.json of its own, which tells tsc and Node the kind of the files.
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { appendFileSync, cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const dist = join(root, 'dist');
rmSync(dist, { recursive: true, force: true });

const kinds = { esm: 'module', cjs: 'commonjs' };
for (const [folder, type] of Object.entries(kinds)) {
  const work = mkdtempSync(join(root, '.build-'));
  try {
    cpSync(join(root, 'src'), join(work, 'src'), { recursive: true });
    cpSync(join(root, 'tsconfig.json'), join(work, 'tsconfig.json'));
    symlinkSync(join(root, 'node_modules'), join(work, 'node_modules'), 'junction');
    writeFileSync(join(work, 'package.json'), JSON.stringify({ type }));
    const out = join(dist, folder);
    mkdirSync(out, { recursive: true });
    execFileSync(process.execPath, [tsc, '-p', work, '--outDir', out], { stdio: 'inherit' });
    writeFileSync(join(out, 'package.json'), JSON.stringify({ type }) + '\n');
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

// `require` of an entry with a default export gives it, as Bull and plugins of Fastify do.
for (const entry of ['bull', 'fastify']) {
  appendFileSync(join(dist, 'cjs', `${entry}.js`), `
module.exports = Object.assign(exports.default, exports);
Object.defineProperty(module.exports, '__esModule', { value: true });
`);
}
