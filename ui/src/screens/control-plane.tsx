// The control plane itself: is it well, and where does it spend its time?
import { useSignal } from "@preact/signals";
import { get } from "../api";
import { count, duration, many } from "../format";
import { Banner, Bar, Card, Empty, Screen, useLive } from "../parts/common";
import { Phase, Truth } from "../parts/status";
import { useEffect } from "preact/hooks";
import type { ControlPlane, QueueRow } from "../types";

export function ControlPlaneScreen() {
  const loaded = useLive<ControlPlane>("control-plane", (abort) => get("/control-plane", abort), ["providers", "functions", "configurations"]);
  useEffect(() => {
    // Figures are not told by watches: they are asked for while somebody looks at them.
    const timer = setInterval(() => document.visibilityState === "visible" && loaded.again(), 5000);
    return () => clearInterval(timer);
  }, [loaded.loading]);
  return (
    <>
      <div class="title">
        <h1>Control plane</h1>
        {loaded.value && (
          <span class="sub break">
            {loaded.value.server}, {loaded.value.version}
          </span>
        )}
      </div>
      <Screen loaded={loaded}>
        {(value) => (
          <>
            {value.problems.map((each) => (
              <Banner key={each.what} tone="warn" icon="warn">
                <b>{each.what}s cannot be read.</b> {each.message}
              </Banner>
            ))}
            {value.figures.length > 0 ? (
              <div class="tiles">
                {value.figures.map((each) => (
                  <div class="tile" key={each.name} title={each.note}>
                    <b>
                      {each.unit ? each.value.toFixed(each.value < 10 ? 2 : 0) : count(each.value)} <small>{each.unit}</small>
                    </b>
                    <span>{each.name}</span>
                  </div>
                ))}
              </div>
            ) : (
              <Banner tone="info" icon="info">
                Queues and figures come from planform's metrics; this API server serves none of them to you.
              </Banner>
            )}
            <div class="split">
              <Card title="Queues: from change to reconcile" flush>
                {value.queues.length ? <Queues queues={value.queues} /> : <p class="body muted">No controller tells of its queue.</p>}
              </Card>
              <div class="stack">
                <Card title={value.findings.length ? `Doctor: ${many(value.findings.length, "finding")}` : "Doctor"} flush>
                  {value.findings.length ? (
                    <ul class="conditions">
                      {value.findings.map((each) => (
                        <li key={each.subject + each.message}>
                          <div class="row wrap">
                            <Phase value={each.level === "stuck" ? "Failed" : "Inconclusive"} label={each.level} />
                            <b class="break">{each.subject}</b>
                          </div>
                          <p>{each.message}</p>
                          {each.hint && <p class="faint">{each.hint}</p>}
                        </li>
                      ))}
                    </ul>
                  ) : (
                    <Empty icon="ready" title="All is well" commands={["planform doctor"]} />
                  )}
                </Card>
                <Card title="Packages" flush>
                  {value.packages.length ? (
                    <ul class="conditions">
                      {value.packages.map((each) => (
                        <li key={each.kind + each.name}>
                          <div class="row wrap">
                            <Truth value={each.healthy || each.installed} yes="Healthy" no="Not healthy" />
                            <span class="badge">{each.kind}</span>
                            <b class="break">{each.name}</b>
                          </div>
                          <p>{each.message || each.package}</p>
                        </li>
                      ))}
                    </ul>
                  ) : (
                    <p class="body muted">None is installed; built-in functions need none.</p>
                  )}
                </Card>
                {Object.keys(value.watches).length > 0 && (
                  <Card title="Watches by kind">
                    <div class="legend">
                      {Object.entries(value.watches)
                        .filter(([, size]) => size)
                        .map(([kind, size]) => (
                          <span key={kind} title={kind}>
                            {kind.split(".")[0]} <b class="num">{size}</b>
                          </span>
                        ))}
                    </div>
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

function Queues({ queues: all }: { queues: QueueRow[] }) {
  const everything = useSignal(false);
  const busy = all.filter((queue) => queue.total > 0 || queue.waiting + queue.delayed + queue.active > 0);
  const queues = (everything.value ? all : busy).slice().sort((a, b) => b.total - a.total);
  const most = Math.max(1, ...queues.map((queue) => queue.waiting + queue.delayed + queue.active));
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th>Controller</th>
            <th>Waiting → in hand</th>
            <th class="right">Oldest</th>
            <th class="right">Reconciles</th>
            <th class="right">Failed</th>
            <th class="right">Mean</th>
          </tr>
        </thead>
        <tbody>
          {queues.map((queue) => (
            <tr key={queue.controller}>
              <td class="break">{queue.controller}</td>
              <td style={{ minWidth: "150px" }}>
                <Bar
                  label={`${queue.waiting} waiting, ${queue.delayed} delayed, ${queue.active} in hand`}
                  parts={[
                    { size: queue.waiting, class: "b-warn", title: `${queue.waiting} waiting` },
                    { size: queue.delayed, class: "b-idle", title: `${queue.delayed} delayed` },
                    { size: queue.active, class: "b-accent", title: `${queue.active} in hand` },
                    { size: most - queue.waiting - queue.delayed - queue.active, class: "", title: "idle" },
                  ]}
                />
                {queue.waiting + queue.delayed + queue.active > 0 && (
                  <span class="small muted num">
                    {[
                      [queue.waiting, "waiting"],
                      [queue.delayed, "delayed"],
                      [queue.active, "in hand"],
                    ]
                      .filter(([size]) => size)
                      .map(([size, word]) => `${size} ${word}`)
                      .join(", ")}
                  </span>
                )}
              </td>
              <td class="right">{queue.oldest ? duration(queue.oldest) : <span class="faint">–</span>}</td>
              <td class="right">{count(queue.total)}</td>
              <td class="right">{queue.failed ? <span class="tone-bad">{count(queue.failed)}</span> : <span class="faint">0</span>}</td>
              <td class="right nowrap">{queue.total ? `${queue.milliseconds.toFixed(1)} ms` : <span class="faint">–</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {busy.length < all.length && (
        <p class="body small">
          <button type="button" class="button" aria-expanded={everything.value} onClick={() => (everything.value = !everything.value)}>
            {everything.value ? "Only those with work" : `and ${many(all.length - busy.length, "controller")} that had nothing to do`}
          </button>
        </p>
      )}
    </div>
  );
}
