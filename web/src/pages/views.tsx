/** The views: queries that have a name, below the streams that they read. */
import { useState } from "preact/hooks";
import { may, messageOf, postJson, refreshStreams, streams, type ViewInfo, views } from "../api";
import { quoted } from "../query/names";
import { newTab } from "../query/shelf";
import { Scroll } from "../ui/loading";
import { Sure } from "../ui/sure";

export function Views() {
  const [problem, setProblem] = useState("");
  const known = new Set((streams.value ?? []).map((one) => one.name));
  const open = ({ name }: ViewInfo) => {
    newTab(`SELECT *\nFROM ${quoted(name)}\nLIMIT 1000`, name);
    location.hash = "#/query";
  };
  const drop = async ({ name }: ViewInfo) => {
    try {
      await postJson("v1/query", { sql: `DROP VIEW ${quoted(name)}` });
      setProblem("");
    } catch (error) {
      setProblem(messageOf(error));
    }
    await refreshStreams();
  };
  return (
    <section aria-label="Views">
      <div class="options"><h2>Views</h2><span class="quiet">named queries; use them in FROM like streams</span></div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      <Scroll label="Views, all columns">
        <table class="list" aria-label="Views">
          <thead><tr><th>View</th><th>Reads</th><th>Columns</th><th>Query</th><td /></tr></thead>
          <tbody>
            {views.value.map((view) => (
              <tr key={view.name}>
                <td>{view.name}</td>
                <td>{view.reads.map((name, i) => <span key={name}>{i > 0 && ", "}{known.has(name) ? <a href={`#/streams/${encodeURIComponent(name)}`}>{name}</a> : name}</span>)}</td>
                <td class="quiet columns">{view.schema.map((column) => column.name).join(", ")}</td>
                <td class="columns"><code title={view.sql}>{view.sql.replace(/\s+/g, " ")}</code></td>
                <td class="number actions">
                  <button type="button" aria-label={`Query ${view.name}`} onClick={() => open(view)}>Query</button>
                  {may("admin", view.name) && <Sure label={`Drop the view ${view.name}`} text="Drop" act={() => void drop(view)} />}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
