// Functions: revisions, who uses them, how fast they answer.
import { get, path } from "../api";
import { count, many, percent } from "../format";
import { Actions } from "../parts/actions";
import { A, Card, Command, Conditions, Crumbs, Empty, Screen, Time, useLive } from "../parts/common";
import { Phase, Truth } from "../parts/status";
import type { FunctionDetail, FunctionPage, FunctionRow } from "../types";

const TOPICS = ["functions", "functionrevisions", "revisions"];

export function FunctionList() {
  const loaded = useLive<FunctionPage>("functions", (abort) => get("/functions", abort), TOPICS);
  return (
    <>
      <div class="title">
        <h1>Functions</h1>
      </div>
      <Screen loaded={loaded}>
        {(page) => (
          <Card title={many(page.rows.length, "function")} flush side={!page.metrics && <span class="small muted">calls are counted by planform's own control planes</span>}>
            {page.rows.length ? (
              <div class="scroll">
                <table>
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>Healthy</th>
                      <th>Active</th>
                      <th class="right">XRs</th>
                      <th class="right">Calls</th>
                      <th class="right">Errors</th>
                      <th class="right">Mean</th>
                      <th class="right">From cache</th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.rows.map((row) => (
                      <tr key={row.name}>
                        <td>
                          <A to={`/function/${row.name}`}>{row.name}</A> {row.builtin && <span class="badge">built in</span>}
                        </td>
                        <td>
                          <Truth value={row.healthy} />
                        </td>
                        <td>{row.active || <span class="faint">–</span>}</td>
                        <td class="right">{count(row.users)}</td>
                        <td class="right">{count(row.calls)}</td>
                        <td class="right">{row.errors ? <span class="tone-bad">{count(row.errors)}</span> : <span class="faint">0</span>}</td>
                        <td class="right">{row.milliseconds ? `${row.milliseconds.toFixed(1)} ms` : <span class="faint">–</span>}</td>
                        <td class="right">{percent(row.cacheHits, row.cacheLookups)}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            ) : (
              <Empty icon="function" title="No function is installed" commands={["planform xpkg install function REFERENCE", "planform function init my-function"]}>
                Built-in functions need no installation; they show up once they are called.
              </Empty>
            )}
          </Card>
        )}
      </Screen>
    </>
  );
}

export function FunctionScreen({ name }: { name: string }) {
  const loaded = useLive<FunctionDetail>(`function ${name}`, (abort) => get(path("functions", name), abort), TOPICS);
  return (
    <>
      <Crumbs items={[["Functions", "/functions"], [name, ""]]} />
      <Screen loaded={loaded}>
        {(value) => (
          <>
            <div class="title">
              <h1>{value.row.name}</h1>
              {value.row.healthy && <Phase value={value.row.healthy} label={value.row.healthy === "True" ? "Healthy" : "Not healthy"} />}
              {value.row.builtin && <span class="badge">built in</span>}
              <span class="sub break">{value.row.package}</span>
            </div>
            <Figures row={value.row} metrics={value.metrics} />
            <div class="split">
              <Card title={many(value.revisions.length, "revision")} flush side={<span class="small muted">activation: {value.policy}</span>}>
                {value.revisions.length ? (
                  <div class="scroll">
                    <table>
                      <thead>
                        <tr>
                          <th>Revision</th>
                          <th>State</th>
                          <th>Healthy</th>
                          <th class="right">XRs</th>
                          <th class="right">Calls</th>
                          <th class="right">Mean</th>
                          <th class="right">Age</th>
                          <th />
                        </tr>
                      </thead>
                      <tbody>
                        {value.revisions.map((each) => (
                          <tr key={each.name}>
                            <td class="break">
                              <b>r{each.number}</b> <span class="small faint">{each.name}</span>
                              {each.message && <div class="small tone-bad">{each.message}</div>}
                            </td>
                            <td>
                              <Phase value={each.state === "Active" ? "Active" : "Present"} chip={false} label={each.state} />
                            </td>
                            <td>
                              <Truth value={each.healthy} />
                            </td>
                            <td class="right">{count(each.users)}</td>
                            <td class="right">{count(each.calls)}</td>
                            <td class="right">{each.milliseconds ? `${each.milliseconds.toFixed(1)} ms` : "–"}</td>
                            <td class="right muted">
                              <Time at={each.created} />
                            </td>
                            <td>
                              <Actions actions={each.actions} of={{ kind: "FunctionRevision", name: each.name, done: loaded.again }} />
                            </td>
                          </tr>
                        ))}
                      </tbody>
                    </table>
                  </div>
                ) : (
                  <p class="body muted">It ships with planform: its revision is planform's own.</p>
                )}
              </Card>
              <div class="stack">
                <Card title="Used by" flush>
                  {value.compositions.length ? (
                    <ul class="conditions">
                      {value.compositions.map((each) => (
                        <li key={each}>
                          <A to={`/composition/${each}`}>{each}</A>
                        </li>
                      ))}
                    </ul>
                  ) : (
                    <p class="body muted">No Composition's newest revision calls it.</p>
                  )}
                </Card>
                {value.revisions.length > 1 && (
                  <Card title="What would another revision change?">
                    <Command text={`planform function diff ${value.revisions[1]!.name} ${value.revisions[0]!.name}`} />
                  </Card>
                )}
                {value.conditions.length > 0 && (
                  <Card title="Conditions" flush>
                    <Conditions items={value.conditions} none="" />
                  </Card>
                )}
              </div>
            </div>
          </>
        )}
      </Screen>
    </>
  );
}

function Figures({ row, metrics }: { row: FunctionRow; metrics: boolean }) {
  if (!metrics) return null;
  const tiles: [string, string][] = [
    ["XRs use it", count(row.users)],
    ["Calls", count(row.calls)],
    ["Errors", percent(row.errors, row.calls)],
    ["Mean", row.milliseconds ? `${row.milliseconds.toFixed(1)} ms` : "–"],
    ["From cache", percent(row.cacheHits, row.cacheLookups)],
  ];
  return (
    <div class="tiles">
      {tiles.map(([name, value]) => (
        <div class="tile" key={name}>
          <b>{value}</b>
          <span>{name}</span>
        </div>
      ))}
    </div>
  );
}
