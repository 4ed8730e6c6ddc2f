// One run of a pipeline: a lane for each step, and what each of them made of the desired state.
import { useSignal } from "@preact/signals";
import { get, path } from "../api";
import { duration, exact, many } from "../format";
import { A, Banner, Card, Crumbs, Screen, Time, useLive } from "../parts/common";
import { Fields } from "../parts/diff";
import { Icon } from "../parts/icons";
import { Phase } from "../parts/status";
import { params, setParams } from "../router";
import type { ResourceDiff, RunDetail, StepLane } from "../types";

export function RunScreen({ uid, id }: { uid: string; id: string }) {
  const loaded = useLive<RunDetail>(`run ${uid} ${id}`, (abort) => get(path("runs", uid, id), abort), []);
  const other = params.value.get("with") ?? "";
  const compared = useLive<RunDetail | null>(`run ${uid} ${other}`, async (abort) => (other ? get<RunDetail>(path("runs", uid, other), abort) : null), []);
  return (
    <>
      <Crumbs items={[["Fleet", "/"], ...(loaded.value?.link ? [[loaded.value.name, loaded.value.link] as [string, string]] : []), [`Run #${id}`, ""]]} />
      <Screen loaded={loaded}>{(run) => <Detail run={run} other={other ? compared.value : null} />}</Screen>
    </>
  );
}

function Detail({ run, other }: { run: RunDetail; other: RunDetail | null }) {
  const onlyFailed = useSignal(false);
  const failed = run.steps.filter((step) => step.error);
  const steps = onlyFailed.value ? failed : run.steps;
  return (
    <>
      <div class="title">
        <h1>Run #{run.id}</h1>
        <Phase value={run.failure ? "Failed" : "Succeeded"} label={run.failure ? "Failed" : "Done"} />
        <span class="sub">
          {run.kind} {run.name}, <span title={exact(run.started)}>{<Time at={run.started} suffix=" ago" />}</span>, {duration(run.seconds)}
        </span>
        <span class="grow" />
        <div class="row wrap">
          {run.older > 0 && (
            <>
              <A to={`/run/${run.uid}/${run.older}`} class="button">
                <Icon name="left" />#{run.older}
              </A>
              <button type="button" class="button" aria-pressed={Boolean(other)} onClick={() => setParams({ with: other ? "" : String(run.older) })}>
                {other ? "Stop comparing" : "Compare with the one before"}
              </button>
            </>
          )}
          {run.newer > 0 && (
            <A to={`/run/${run.uid}/${run.newer}`} class="button">
              #{run.newer}
              <Icon name="right" />
            </A>
          )}
        </div>
      </div>
      {run.failure && (
        <Banner tone="bad" icon="cross">
          <p class="mono">{run.failure}</p>
        </Banner>
      )}
      {run.warnings.map((warning) => (
        <Banner key={warning} tone="warn" icon="warn">
          {warning}
        </Banner>
      ))}
      {other && <Compared run={run} other={other} />}
      <Card
        title={`${many(run.steps.length, "step")} of ${run.composition || "the pipeline"}`}
        flush
        side={
          <>
            <span class="small muted">because: {run.trigger || "–"}</span>
            {failed.length > 0 && (
              <div class="segments">
                <button type="button" aria-pressed={!onlyFailed.value} onClick={() => (onlyFailed.value = false)}>
                  All
                </button>
                <button type="button" aria-pressed={onlyFailed.value} onClick={() => (onlyFailed.value = true)}>
                  Only failed
                </button>
              </div>
            )}
          </>
        }
      >
        <div class="lanes">
          {steps.map((step) => (
            <Lane key={step.step} step={step} total={run.seconds} open={Boolean(step.error) || step === run.steps[0]} />
          ))}
        </div>
      </Card>
      <Card title={run.planned ? `The plan: ${many(run.plan.length, "resource")}` : "It did not come to a plan"} flush>
        {run.planned && run.plan.length > 0 ? (
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>Resource</th>
                  <th>Action</th>
                  <th>Object</th>
                  <th>Ready</th>
                </tr>
              </thead>
              <tbody>
                {run.plan.map((each) => (
                  <tr key={each.resource + each.name}>
                    <td>{each.resource}</td>
                    <td>
                      <Phase value={each.action === "delete" ? "Failed" : each.action === "create" ? "Running" : "Present"} chip={false} label={each.action} />
                    </td>
                    <td class="break">
                      <span class="badge">{each.kind}</span> {each.namespace ? `${each.namespace}/` : ""}
                      {each.name}
                    </td>
                    <td>{each.ready ? <Phase value="True" chip={false} label="Ready" /> : <span class="muted">not yet</span>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ) : (
          <p class="body muted">{run.planned ? "Nothing had to be changed." : "A step failed before it."}</p>
        )}
      </Card>
    </>
  );
}

function Lane({ step, total, open: initially }: { step: StepLane; total: number; open: boolean }) {
  const open = useSignal(initially);
  const cached = step.cache.toLowerCase().startsWith("hit");
  const left = total ? (step.start / total) * 100 : 0;
  const width = total ? (step.seconds / total) * 100 : 0;
  return (
    <>
      <button type="button" class="lane" data-row aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <span>
          <span class="row">
            {step.error ? <span class="status tone-bad"><Icon name="cross" /><span class="hidden">failed</span></span> : <span class="status tone-good"><Icon name="ready" /><span class="hidden">done</span></span>}
            <b>{step.step}</b>
          </span>
          <span class="small muted break">{step.function}</span>
        </span>
        <span class="track" aria-hidden="true">
          <i class={step.error ? "bad" : cached ? "cached" : ""} style={{ left: `${Math.min(98, left)}%`, width: `${Math.max(0.6, Math.min(100 - left, width))}%` }} />
        </span>
        <span class="small num muted">
          {duration(step.seconds)}
          {step.cache && step.cache !== "Off" && <div class="badge">cache: {step.cache.toLowerCase()}</div>}
        </span>
      </button>
      {open.value && (
        <div class="lane-detail">
          <dl class="facts-list">
            <dt>Function revision</dt>
            <dd>
              <A to={`/function/${step.function}`}>{step.revision || step.function}</A> <span class="muted small">{step.rule && `chosen by ${step.rule}`}</span>
              {step.rejected.map(([id, why]) => (
                <div key={id} class="small muted">
                  not {id}: {why}
                </div>
              ))}
            </dd>
            {step.iterations > 1 && (
              <>
                <dt>Iterations</dt>
                <dd>{step.iterations}</dd>
              </>
            )}
            {step.reads.length > 0 && (
              <>
                <dt>Read</dt>
                <dd>
                  {step.reads.map((read) => (
                    <div key={read.name}>
                      {read.name}: <span class="badge">{read.kind}</span> {read.found.length ? read.found.join(", ") : <span class="muted">nothing found</span>}
                    </div>
                  ))}
                </dd>
              </>
            )}
          </dl>
          {step.error && (
            <Banner tone="bad" icon="cross">
              <p class="mono">{step.error}</p>
            </Banner>
          )}
          {step.results.map((result, index) => (
            <Banner key={index} tone={result.severity.toLowerCase().includes("warn") ? "warn" : result.severity.toLowerCase().includes("fatal") ? "bad" : "info"} icon="info">
              {result.reason && <b>{result.reason}: </b>}
              {result.message}
            </Banner>
          ))}
          <div class="stack">
            <h3>{step.changes.length ? `Changed ${many(step.changes.length, "object")} of the desired state` : "Changed nothing of the desired state"}</h3>
            {step.changes.map((change) => (
              <Resource key={change.key} change={change} open={step.changes.length < 4} />
            ))}
          </div>
        </div>
      )}
    </>
  );
}

function Resource({ change, open }: { change: ResourceDiff; open: boolean }) {
  return (
    <details class="resource" open={open}>
      <summary>
        <Phase value={change.change === "added" ? "Passed" : change.change === "removed" ? "Failed" : "Running"} chip={false} label={change.change} />
        <b>{change.key}</b>
        <span class="badge">{change.kind}</span>
        <span class="muted small">{many(change.fields.length + change.more, "field")}</span>
      </summary>
      <div>
        <Fields fields={change.fields} more={change.more} />
      </div>
    </details>
  );
}

function Compared({ run, other }: { run: RunDetail; other: RunDetail }) {
  const rows = run.steps.map((step) => [step, other.steps.find((each) => each.step === step.step)] as const);
  const summary = (step?: StepLane) => (step ? step.changes.map((change) => `${change.key}: ${change.fields.map((field) => `${field.path}=${field.after}`).join(" ")}`).join("\n") : "");
  return (
    <Card title={`Compared with run #${other.id}`} flush>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Step</th>
              <th>Revision</th>
              <th class="right">Took</th>
              <th>Desired state</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([step, before]) => (
              <tr key={step.step}>
                <td>{step.step}</td>
                <td class="break">{before && before.revision !== step.revision ? `${before.revision} → ${step.revision}` : <span class="muted">same</span>}</td>
                <td class="right">
                  {before ? `${duration(before.seconds)} → ` : ""}
                  {duration(step.seconds)}
                </td>
                <td>{!before ? "new step" : summary(before) === summary(step) ? <span class="muted">the same</span> : <b>differs</b>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
