/** Help: the documentation of this very version, from the server itself; examples open in a tab. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { messageOf, ROOT } from "../api";
import { newTab } from "../query/shelf";
import { Loading } from "../ui/loading";
import type { Block } from "./markdown";

/** The three parts of the documentation, in the order of the README; pages that no part names end the last one. */
const PARTS: [string, string[]][] = [
  ["First steps", ["first-steps", "console", "notebooks"]],
  ["How to", [
    "windows", "match_recognize", "situations", "recency", "live", "rollups", "indexes",
    "recipes", "clients", "spark", "server", "operations", "security",
  ]],
  ["Reference", [
    "sql", "values", "cli", "rest", "durability", "format", "architecture", "scale", "benchmarks", "testing",
  ]],
];
const ORDER = PARTS.flatMap(([, names]) => names);

async function text(name: string): Promise<string> {
  const response = await fetch(`${ROOT}console/docs/${name}`);
  if (!response.ok) throw new Error(`The page ${name} is not there.`);
  return response.text();
}

export function HelpPage({ rest }: { rest: string }) {
  const [pages, setPages] = useState<Map<string, string>>(new Map());
  const [problem, setProblem] = useState("");
  const [words, setWords] = useState("");
  useEffect(() => {
    void (async () => {
      try {
        const names = (await text("")).split("\n").filter(Boolean);
        const found = await Promise.all(names.map(async (name) => [name, await text(`${name}.md`)] as const));
        setPages(new Map(found));
      } catch (error) {
        setProblem(messageOf(error));
      }
    })();
  }, []);
  const others = [...pages.keys()].filter((one) => !ORDER.includes(one));
  const name = decodeURIComponent(rest).replace(/#.*$/, "") || "first-steps";
  const found = useMemo(() => search(pages, words), [pages, words]);
  return (
    <main class="help">
      <nav aria-label="Documentation">
        <input type="search" aria-label="Search the documentation" placeholder="Search" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
        {words.trim() ? (
          <ul>
            {found.map((hit, i) => <li key={i}><a href={`#/help/${hit.name}`}><b>{hit.title}</b><span class="quiet">{hit.line}</span></a></li>)}
            {!pages.size && <li class="quiet" role="status">Loading…</li>}
            {pages.size > 0 && found.length === 0 && <li class="quiet">No page contains these words.</li>}
          </ul>
        ) : (
          <details open={innerWidth > 760}>
            <summary>Pages</summary>
            {PARTS.map(([part, names], i) => (
            <section key={part} aria-label={part}>
              <p class="quiet">{part}</p>
              <ul>
                {[...names, ...(i === PARTS.length - 1 ? others : [])].filter((one) => pages.has(one)).map((one) => (
                  <li key={one}><a href={`#/help/${one}`} aria-current={one === name ? "page" : undefined}>{titleOf(pages.get(one) ?? one)}</a></li>
                ))}
              </ul>
            </section>
            ))}
            <p><a href="../docs">API reference</a></p>
          </details>
        )}
      </nav>
      <article class="doc">
        {problem && <p class="banner bad" role="alert">{problem}</p>}
        {!pages.size && !problem && <Loading />}
        {pages.get(name) && <Page key={name} source={pages.get(name) as string} />}
      </article>
    </main>
  );
}

function titleOf(source: string): string {
  return /^# (.+)$/m.exec(source)?.[1] ?? source.slice(0, 40);
}

interface Hit {
  name: string;
  title: string;
  line: string;
}

const HITS = 60;

function search(pages: Map<string, string>, words: string): Hit[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return [];
  const found: Hit[] = [];
  for (const [name, source] of pages) {
    const title = titleOf(source);
    for (const line of source.split("\n")) {
      const low = line.toLowerCase();
      if (wanted.every((word) => low.includes(word))) found.push({ name, title, line: line.replace(/[`*#|]/g, "").trim().slice(0, 140) });
      if (found.length >= HITS) return found;
    }
  }
  return found;
}

function Page({ source }: { source: string }) {
  const [blocks, setBlocks] = useState<Block[]>([]);
  useEffect(() => void import("./markdown").then(({ blocksOf }) => setBlocks(blocksOf(source))), [source]);
  return <>{blocks.map((block, i) => <Part key={i} block={block} />)}</>;
}

function open(sql: string): void {
  newTab(sql.trim(), "Example");
  location.hash = "#/query";
}

function Part({ block }: { block: Block }) {
  if (typeof block === "string") return <>{block}</>;
  const inside = block.inside.map((one, i) => <Part key={i} block={one} />);
  if (block.tag === "pre") {
    return (
      <div class="example">
        <pre tabIndex={0}><code>{block.text}</code></pre>
        {block.sql && <button type="button" onClick={() => open(block.text ?? "")}>Open in a tab</button>}
      </div>
    );
  }
  if (block.tag === "table") return <div class="scroll" tabIndex={0}><table class="list">{inside}</table></div>;
  const Tag = block.tag as "p";
  return <Tag {...(block.href ? { href: block.href, ...(block.href.startsWith("http") ? { rel: "noreferrer noopener", target: "_blank" } : {}) } : {})}>{inside}</Tag>;
}
