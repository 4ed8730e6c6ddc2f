// Compositions: the timeline of revisions, who is on which over time, and what any two differ in.
import { get, path, query } from "../api";
import { count, many, shortName } from "../format";
import { Actions } from "../parts/actions";
import { StackedArea, colour } from "../parts/charts";
import { A, Card, Conditions, Crumbs, Empty, Failure, Screen, Skeleton, Time, useLive } from "../parts/common";
import { TextDiff } from "../parts/diff";
import { Phase } from "../parts/status";
import { href, params, setParams } from "../router";
import type { CompositionDetail, CompositionPage, RevisionRow, TwoTexts } from "../types";

export function CompositionList() {
  const loaded = useLive<CompositionPage>("compositions", (abort) => get("/compositions", abort), ["compositions", "revisions", "xrs", "rollouts"]);
  return (
    <>
      <div class="title">
        <h1>Compositions</h1>
      </div>
      <Screen loaded={loaded}>
        {(page) => (
          <Card title={many(page.rows.length, "Composition")} flush>
            {page.rows.length ? (
              <div class="scroll">
                <table>
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>Composes</th>
                      <th class="right">XRs</th>
                      <th class="right">Not on the newest</th>
                      <th class="right">Revisions</th>
                      <th>Rollout</th>
                      <th class="right">Age</th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.rows.map((row) => (
                      <tr key={row.name}>
                        <td>
                          <A to={`/composition/${row.name}`}>{row.name}</A>
                        </td>
                        <td>
                          <span class="badge">{row.kind}</span>
                        </td>
                        <td class="right">
                          <A to={`/?composition=${row.name}`}>{count(row.users)}</A>
                        </td>
                        <td class="right">{row.behind ? count(row.behind) : <span class="faint">0</span>}</td>
                        <td class="right">{row.revisions}</td>
                        <td>{row.rollout ? <A to={`/rollout/${row.rollout}`}>{row.rollout}</A> : <span class="faint">–</span>}</td>
                        <td class="right muted">
                          <Time at={row.created} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            ) : (
              <Empty icon="composition" title="No Composition yet" commands={["planform apply -f composition.yaml", "planform render xr.yaml composition.yaml"]}>
                A Composition says what an XR becomes.
              </Empty>
            )}
          </Card>
        )}
      </Screen>
    </>
  );
}

export function CompositionScreen({ name }: { name: string }) {
  const loaded = useLive<CompositionDetail>(`composition ${name}`, (abort) => get(path("compositions", name), abort), ["compositions", "revisions", "xrs", "rollouts"]);
  return (
    <>
      <Crumbs items={[["Compositions", "/compositions"], [name, ""]]} />
      <Screen loaded={loaded}>{(value) => <Detail value={value} again={loaded.again} />}</Screen>
    </>
  );
}

function Detail({ value, again }: { value: CompositionDetail; again: () => void }) {
  const { row, revisions, usage: population } = value;
  const number = (revision: string) => {
    const found = revisions.find((each) => each.name === revision);
    return found ? `r${found.number}` : shortName(revision) || "none";
  };
  const from = params.value.get("from") || revisions[1]?.name || "";
  const to = params.value.get("to") || revisions[0]?.name || "";
  return (
    <>
      <div class="title">
        <h1>{row.name}</h1>
        <span class="badge">{row.kind}</span>
        <span class="sub">
          <A to={`/?composition=${row.name}`}>{many(row.users, "XR")}</A>
          {row.behind > 0 && `, ${count(row.behind)} not on the newest revision`}
        </span>
        <span class="grow" />
        <Actions actions={value.actions} of={{ kind: "Composition", name: row.name, value: () => revisions[0]?.name ?? "", done: again }} />
      </div>
      <div class="split">
        <div class="stack">
          <Card title="Who runs which revision" side={<span class="small muted">{population.source}</span>}>
            {population.samples.length ? (
              <div class="stack">
                <StackedArea population={population} names={number} />
                <div class="legend">
                  {[...population.revisions].reverse().map((revision) => {
                    const index = population.revisions.indexOf(revision);
                    const last = population.samples[population.samples.length - 1];
                    return (
                      <a key={revision} href={href(`/?composition=${row.name}&revision=${revision}`)}>
                        <i class={`c${colour(index, population.revisions.length)}`} aria-hidden="true" />
                        {number(revision)} <span class="num">{count(last?.counts[index] ?? 0)}</span>
                      </a>
                    );
                  })}
                </div>
              </div>
            ) : (
              <Empty icon="fleet" title="No XR uses it" commands={[`planform explain ${row.kind.toLowerCase()}`]} />
            )}
          </Card>
          <Card
            title="What two revisions differ in"
            flush
            side={
              <div class="row wrap">
                <Choose label="From" value={from} revisions={revisions} onChange={(chosen) => setParams({ from: chosen })} />
                <span class="muted">→</span>
                <Choose label="To" value={to} revisions={revisions} onChange={(chosen) => setParams({ to: chosen })} />
              </div>
            }
          >
            {from && to ? <Diff name={row.name} from={from} to={to} /> : <p class="body muted">There is one revision so far.</p>}
          </Card>
        </div>
        <div class="stack">
          <Card title="Revisions" flush side={<span class="small muted">{value.historyLimit ? `keeps ${value.historyLimit} unused ones` : "keeps all"}</span>}>
            {revisions.map((revision) => (
              <Revision key={revision.name} revision={revision} composition={row.name} />
            ))}
          </Card>
          {value.rollouts.length > 0 && (
            <Card title="Rollouts" flush>
              <ul class="conditions">
                {value.rollouts.map((each) => (
                  <li key={each.name}>
                    <div class="row wrap">
                      <A to={`/rollout/${each.name}`}>{each.name}</A>
                      <Phase value={each.phase} />
                    </div>
                  </li>
                ))}
              </ul>
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
  );
}

function Choose(props: { label: string; value: string; revisions: RevisionRow[]; onChange: (name: string) => void }) {
  return (
    <select class="select" aria-label={props.label} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
      {props.revisions.map((each) => (
        <option key={each.name} value={each.name}>
          r{each.number}
        </option>
      ))}
    </select>
  );
}

function Diff({ name, from, to }: { name: string; from: string; to: string }) {
  const loaded = useLive<TwoTexts>(`diff ${name} ${from} ${to}`, (abort) => get(`${path("compositions", name, "diff")}${query({ from, to })}`, abort), []);
  if (loaded.error) return <Failure error={loaded.error} again={loaded.again} />;
  if (!loaded.value) return <Skeleton />;
  return <TextDiff before={loaded.value.before} after={loaded.value.after} label={`What ${to} differs in from ${from}`} />;
}

function Revision({ revision, composition }: { revision: RevisionRow; composition: string }) {
  return (
    <div class={`rev${revision.users ? " used" : ""}`}>
      <span class="dot" aria-hidden="true" />
      <div class="stack" style={{ gap: "4px" }}>
        <div class="row wrap">
          <b>r{revision.number}</b>
          {revision.newest && <span class="badge accent">newest</span>}
          {revision.released && <Phase value={revision.released === "True" ? "Released" : revision.released} />}
          {revision.valid === "False" && <Phase value="False" label="Pipeline not valid" />}
          <span class="small muted" style={{ marginLeft: "auto" }}>
            <Time at={revision.created} suffix=" ago" />
          </span>
        </div>
        <div class="small muted">
          {revision.users ? <A to={`/?composition=${composition}&revision=${revision.name}`}>{many(revision.users, "XR")}</A> : "no XR"}
          {revision.collectable ? <span class="tone-warn"> · garbage collection would take it</span> : revision.keeps && !revision.users ? ` · kept: ${revision.keeps}` : ""}
        </div>
        {revision.message && <div class="small tone-bad break">{revision.message}</div>}
        <div class="row wrap">
          {revision.steps.map((step) => (
            <A key={step.step} to={`/function/${step.function}`} class="badge">
              {step.function || step.step}
              {step.pin && ` @ ${shortName(step.pin)}`}
            </A>
          ))}
        </div>
      </div>
    </div>
  );
}
