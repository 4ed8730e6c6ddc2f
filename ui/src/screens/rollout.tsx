// A rollout: the ladder of waves, what it waits for, and the way back, always in sight.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, path } from "../api";
import { count, many, shortName, span } from "../format";
import { Actions } from "../parts/actions";
import { Spark } from "../parts/charts";
import { A, Banner, Bar, Card, Crumbs, Empty, Screen, Time, useLive } from "../parts/common";
import { Icon } from "../parts/icons";
import { Phase } from "../parts/status";
import type { GateRow, RolloutDetail, RolloutPage, WaveRow } from "../types";

export function RolloutList() {
  const loaded = useLive<RolloutPage>("rollouts", (abort) => get("/rollouts", abort), ["rollouts"]);
  return (
    <>
      <div class="title">
        <h1>Rollouts</h1>
      </div>
      <Screen loaded={loaded}>
        {(page) => (
          <Card title={many(page.rows.length, "Rollout")} flush>
            {page.rows.length ? (
              <div class="scroll">
                <table>
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>Composition</th>
                      <th>Phase</th>
                      <th>Progress</th>
                      <th class="right">Failed</th>
                      <th class="right">Age</th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.rows.map((row) => (
                      <tr key={row.name}>
                        <td>
                          <A to={`/rollout/${row.name}`}>{row.name}</A>
                        </td>
                        <td>{row.compositions.join(", ")}</td>
                        <td>
                          <Phase value={row.phase} label={row.waiting ? `${row.phase}, waits for ${row.waiting}` : undefined} />
                        </td>
                        <td style={{ minWidth: "160px" }}>
                          <Progress target={row.target} total={row.total} />
                        </td>
                        <td class="right">{row.failed ? <span class="tone-bad">{row.failed}</span> : <span class="faint">0</span>}</td>
                        <td class="right muted">
                          <Time at={row.created} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            ) : page.served ? (
              <Empty icon="rollout" title="Nothing has been rolled out" commands={["planform apply -f rollout-policy.yaml", "planform rollout list"]}>
                Under a RolloutPolicy each new revision of a Composition moves the fleet in waves.
              </Empty>
            ) : (
              <Empty icon="rollout" title="This control plane knows no rollouts">
                They are planform's: on a cluster that runs Crossplane only, every XR follows its Composition at once.
              </Empty>
            )}
          </Card>
        )}
      </Screen>
    </>
  );
}

function Progress({ target, total }: { target: number; total: number }) {
  return (
    <div class="row">
      <div class="grow">
        <Bar label={`${target} of ${total} moved`} parts={[{ size: target, class: "b-accent", title: `${target} moved` }, { size: Math.max(0, total - target), class: "", title: `${total - target} to go` }]} />
      </div>
      <span class="num small muted">
        {count(target)}/{count(total)}
      </span>
    </div>
  );
}

export function RolloutScreen({ name }: { name: string }) {
  const loaded = useLive<RolloutDetail>(`rollout ${name}`, (abort) => get(path("rollouts", name), abort), ["rollouts"]);
  return (
    <>
      <Crumbs items={[["Rollouts", "/rollouts"], [name, ""]]} />
      <Screen loaded={loaded}>{(value) => <Detail value={value} again={loaded.again} />}</Screen>
    </>
  );
}

const COUNTS: [string, string, string][] = [
  ["target", "moved", "tone-accent"],
  ["ready", "ready", "tone-good"],
  ["inFlight", "in flight", "tone-accent"],
  ["failed", "failed", "tone-bad"],
  ["deviated", "deviate from the preview", "tone-bad"],
  ["putOff", "put off, not well before", "tone-warn"],
  ["skipped", "skipped", "tone-idle"],
  ["pinned", "pinned", "tone-idle"],
];

function Detail({ value, again }: { value: RolloutDetail; again: () => void }) {
  const { row, counts } = value;
  const needsLook = ["AwaitingApproval", "Paused"].includes(row.phase) || Boolean(value.waitingFor);
  return (
    <>
      <div class="title">
        <h1>{row.name}</h1>
        <Phase value={row.phase} />
        <span class="sub">
          {value.changes.map((change) => (
            <span key={change.composition}>
              <A to={`/composition/${change.composition}?from=${change.before}&to=${change.after}`}>{change.composition}</A> {shortName(change.before)} → {shortName(change.after)}
              {change.cause && ` because of ${change.cause}`}
            </span>
          ))}
        </span>
        <span class="grow" />
        <Actions actions={value.actions} of={{ kind: "Rollout", name: row.name, done: again }} />
      </div>
      {needsLook && (
        <Banner tone="warn" icon="clock">
          <p>
            <b>Waits{value.waitingFor ? ` for: ${value.waitingFor}` : ""}.</b> {value.waitingMessage}
          </p>
        </Banner>
      )}
      {value.message && value.message !== value.waitingMessage && (
        <Banner tone={row.failed ? "warn" : "info"} icon="info">
          {value.message}
        </Banner>
      )}
      <div class="tiles">
        <div class="tile">
          <b>
            {count(counts.target ?? row.target)} <small>of {count(row.total)}</small>
          </b>
          <span>moved</span>
        </div>
        {COUNTS.filter(([key]) => key !== "target" && (counts[key] || key === "failed" || key === "ready")).map(([key, label, tone]) => (
          <div class="tile" key={key}>
            <b>{count(counts[key] ?? 0)}</b>
            <span class={counts[key] ? tone : ""}>{label}</span>
          </div>
        ))}
      </div>
      <div class="split">
        <Card title={many(value.waves.length, "wave")} flush>
          <div class="ladder">
            {value.waves.map((wave, index) => (
              <Wave key={wave.name} wave={wave} index={index} />
            ))}
            {!value.waves.length && <p class="body muted">The waves are computed when it starts.</p>}
          </div>
        </Card>
        <div class="stack">
          {value.failing.length > 0 && (
            <Card title={`${many(value.failing.length, "XR")} in trouble`} flush>
              <ul class="conditions">
                {value.failing.map((each) => (
                  <li key={each.xr}>
                    <div class="row wrap">
                      <span class="status tone-bad">
                        <Icon name="cross" />
                        Failing
                      </span>
                      {each.link ? <A to={each.link}>{each.xr}</A> : <b>{each.xr}</b>}
                    </div>
                    <p>{each.message}</p>
                  </li>
                ))}
              </ul>
            </Card>
          )}
          <Card title="What was done" flush>
            {value.history.length ? (
              <ul class="conditions">
                {[...value.history].reverse().map((each, index) => (
                  <li key={index}>
                    <div class="row wrap">
                      <b>{each.action}</b>
                      <span class="muted">by {each.by || "planform"}</span>
                      <span class="faint small" style={{ marginLeft: "auto" }}>
                        <Time at={each.time} suffix=" ago" />
                      </span>
                    </div>
                    {each.reason && <p>{each.reason}</p>}
                    {each.outcome && <p class="muted">{each.outcome}</p>}
                  </li>
                ))}
              </ul>
            ) : (
              <p class="body muted">Nobody has done anything to it.</p>
            )}
          </Card>
          {(value.preview || value.policy) && (
            <Card title="Follows from">
              <dl class="facts-list">
                {value.policy && (
                  <>
                    <dt>Policy</dt>
                    <dd>
                      <A to="/policies">{value.policy}</A>
                    </dd>
                  </>
                )}
                {value.preview && (
                  <>
                    <dt>Preview</dt>
                    <dd>
                      <A to={`/preview/${value.preview}`}>{value.preview}</A>
                    </dd>
                  </>
                )}
              </dl>
            </Card>
          )}
        </div>
      </div>
    </>
  );
}

function Wave({ wave, index }: { wave: WaveRow; index: number }) {
  const done = wave.state === "Finished";
  const waiting = wave.state === "Waiting";
  const moving = Math.max(0, wave.target - wave.ready - wave.failed);
  const left = Math.max(0, wave.xrs - wave.target);
  return (
    <div class={`wave${wave.failed ? " failed" : done ? " done" : waiting ? "" : " now"}`}>
      <span class="step">{done && !wave.failed ? <Icon name="check" /> : index + 1}</span>
      <div>
        <b>{wave.name}</b>
        <div class="small muted">
          {many(wave.xrs, "XR")}
          {wave.parts > 1 && `, ${wave.parts} parts`}
        </div>
      </div>
      <div class="facts">
        <Bar
          tall
          label={`${wave.ready} ready, ${moving} moving, ${wave.failed} failed, ${left} to go`}
          parts={[
            { size: wave.ready, class: "b-good", title: `${wave.ready} ready` },
            { size: moving, class: "b-accent", title: `${moving} moving` },
            { size: wave.failed, class: "b-bad", title: `${wave.failed} failed` },
            { size: left || (wave.xrs ? 0 : 1), class: "", title: `${left} to go` },
          ]}
        />
        <div class="row wrap small">
          <Phase value={wave.state} chip={false} label={wave.parts > 1 && !waiting && !done ? `${wave.state}, part ${wave.part} of ${wave.parts}` : undefined} />
          <span class="muted num">
            {count(wave.ready)} ready{moving > 0 && `, ${count(moving)} moving`}
            {wave.failed > 0 && `, ${count(wave.failed)} failed`}
            {left > 0 && `, ${count(left)} to go`}
          </span>
          {wave.until && <Countdown until={wave.until} />}
          {waiting && wave.soak && <span class="faint">soaks {wave.soak}</span>}
          {wave.approval && !done && <span class="badge">needs approval: {wave.approval}</span>}
          {wave.finished && (
            <span class="faint">
              finished <Time at={wave.finished} suffix=" ago" />
            </span>
          )}
        </div>
        {wave.gates.length > 0 && (
          <div class="gates">
            {wave.gates.map((gate) => (
              <Gate key={gate.name} gate={gate} />
            ))}
          </div>
        )}
      </div>
    </div>
  );
}

function Gate({ gate }: { gate: GateRow }) {
  const bound = /-?\d+(\.\d+)?/.exec(gate.threshold);
  return (
    <div class="gate" title={gate.query}>
      <Phase value={gate.verdict} label={`${gate.name}: ${gate.verdict.toLowerCase()}`} />
      <span class="num">
        {gate.value}
        {gate.threshold && <span class="muted"> against {gate.threshold}</span>}
      </span>
      <Spark series={gate.series} threshold={bound ? Number(bound[0]) : null} />
      {gate.message && <span class="muted break">{gate.message}</span>}
    </div>
  );
}

function Countdown({ until }: { until: string }) {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const left = (Date.parse(until) - now.value) / 1000;
  if (!(left > 0)) return null;
  return <span class="badge accent num">soaks {span(left)} more</span>;
}
