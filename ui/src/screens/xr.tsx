// One XR: what it is made of, what is wrong with it, what happened, and what can be done.
import { useSignal } from "@preact/signals";
import { get, path } from "../api";
import { duration, many } from "../format";
import { Actions } from "../parts/actions";
import { A, Banner, Card, Command, Conditions, Crumbs, Empty, Screen, Time, useLive } from "../parts/common";
import { Icon } from "../parts/icons";
import { Health, Phase } from "../parts/status";
import { Graph, Tree } from "../parts/tree";
import type { TreeNode, XrDetail } from "../types";

export function XrScreen({ kind, namespace, name }: { kind: string; namespace: string; name: string }) {
  const id = `${kind}/${namespace}/${name}`;
  const loaded = useLive<XrDetail>(`xr ${id}`, (abort) => get(path("xrs", kind, namespace, name), abort), ["xrs", "revisions", "rollouts"], id, (changed) => changed === id);
  return (
    <>
      <Crumbs items={[["Fleet", "/"], [kind.split(".")[0]!, `/?kind=${kind}`], ...(namespace !== "-" ? [[namespace, `/?namespace=${namespace}`] as [string, string]] : []), [name, ""]]} />
      <Screen loaded={loaded}>{(xr) => <Detail xr={xr} again={loaded.again} kind={kind} />}</Screen>
    </>
  );
}

function Detail({ xr, again, kind }: { xr: XrDetail; again: () => void; kind: string }) {
  const graph = useSignal(false);
  const problems = collect(xr.tree);
  const value = (action: string) => (action === "confirm-deletion" ? xr.budgetToken : action === "move" ? xr.newestRevision : "");
  return (
    <>
      <div class="title">
        <h1>{xr.row.name}</h1>
        <Health value={xr.row.health} chip />
        <span class="badge">{xr.row.kind}</span>
        {xr.row.namespace && <span class="sub">{xr.row.namespace}</span>}
        <span class="grow" />
        <Actions actions={xr.actions} of={{ kind, namespace: xr.row.namespace, name: xr.row.name, value, done: again }} />
      </div>
      {xr.paused && (
        <Banner tone="warn" icon="pause">
          <p>
            <b>Paused.</b> Nothing of it is changed until somebody resumes it.
          </p>
        </Banner>
      )}
      {xr.heldBy && xr.newestRevision !== xr.row.revision && (
        <Banner tone="info" icon="rollout">
          <p>
            <b>Held by a rollout.</b> <A to={`/rollout/${xr.heldBy}`}>{xr.heldBy}</A> decides when it moves to r{xr.newestNumber}.
          </p>
        </Banner>
      )}
      {xr.budgetToken && (
        <Banner tone="bad" icon="trash">
          <p>
            <b>Deletions wait for a human.</b> More would be deleted than may be without one. The token of exactly these deletions is <code>{xr.budgetToken}</code>.
          </p>
        </Banner>
      )}
      {xr.deleting && (
        <Banner tone="warn" icon="trash">
          <p>
            <b>Being deleted</b> since <Time at={xr.deleting} />.
          </p>
        </Banner>
      )}
      <div class="split">
        <div class="stack">
          <Card
            title={`Made of ${many(xr.nodes - 1, "object")}`}
            flush
            side={
              <div class="segments" role="group" aria-label="How to show it">
                <button type="button" aria-pressed={!graph.value} onClick={() => (graph.value = false)}>
                  Tree
                </button>
                <button type="button" aria-pressed={graph.value} onClick={() => (graph.value = true)}>
                  Graph
                </button>
              </div>
            }
          >
            {graph.value ? <Graph root={xr.tree} /> : <Tree root={xr.tree} />}
          </Card>
          {problems.length > 0 && (
            <Card title={`${many(problems.length, "problem")}, verbatim`} flush>
              <ul class="conditions">
                {problems.map((node) => (
                  <li key={node.id}>
                    <div class="row wrap">
                      <Health value={node.health} />
                      <span class="badge">{node.kind}</span>
                      <b>{node.name}</b>
                    </div>
                    <p>{node.error || node.state || "It says nothing about why."}</p>
                  </li>
                ))}
              </ul>
            </Card>
          )}
          <Runs xr={xr} />
        </div>
        <div class="stack">
          <Card title="What it runs">
            <dl class="facts-list">
              <dt>Composition</dt>
              <dd>{xr.row.composition ? <A to={`/composition/${xr.row.composition}`}>{xr.row.composition}</A> : "–"}</dd>
              <dt>Revision</dt>
              <dd>
                {xr.row.revision ? (
                  <>
                    r{xr.row.revisionNumber || "?"} <span class="faint small">{xr.row.revision}</span>
                  </>
                ) : (
                  "–"
                )}
              </dd>
              <dt>Follows</dt>
              <dd>{xr.updatePolicy === "Manual" ? "nothing: pinned" : "the newest revision"}</dd>
              {xr.claim && (
                <>
                  <dt>Claim</dt>
                  <dd>
                    {xr.claim.namespace}/{xr.claim.name}
                  </dd>
                </>
              )}
              {xr.parents.map((parent) => (
                <>
                  <dt>Part of</dt>
                  <dd>
                    <A to={parent.link}>{`${parent.kind} ${parent.name}`}</A>
                  </dd>
                </>
              ))}
              <dt>Created</dt>
              <dd>
                <Time at={xr.row.created} suffix=" ago" />
              </dd>
              {Object.entries(xr.row.labels).length > 0 && (
                <>
                  <dt>Labels</dt>
                  <dd class="row wrap">
                    {Object.entries(xr.row.labels).map(([key, label]) => (
                      <A key={key} to={`/?q=${encodeURIComponent(`${key}=${label}`)}`} class="badge">
                        {key}={label}
                      </A>
                    ))}
                  </dd>
                </>
              )}
            </dl>
          </Card>
          {xr.newestRevision && xr.newestRevision !== xr.row.revision && (
            <Card title="What would the newest change?">
              <div class="stack">
                <p>
                  r{xr.newestNumber} is newer than r{xr.row.revisionNumber || "?"}, which this XR runs.{" "}
                  <A to={`/composition/${xr.row.composition}?from=${xr.row.revision}&to=${xr.newestRevision}`}>See what differs</A>, or what it would do to {xr.row.namespace ? `the XRs in ${xr.row.namespace}` : "the XRs"}:
                </p>
                <Command text={`planform preview --revision ${xr.row.composition}/${xr.newestRevision}` + (xr.row.namespace && ` --scope ${xr.row.namespace}`)} />
              </div>
            </Card>
          )}
          <Card title="Conditions" flush>
            <Conditions items={xr.conditions} none="No controller has said anything yet." />
          </Card>
          <Card title="Events" flush>
            {xr.events.length ? (
              <ul class="conditions">
                {xr.events.slice(0, 20).map((event, index) => (
                  <li key={index}>
                    <div class="row wrap">
                      <Phase value={event.type === "Warning" ? "Error" : "Present"} chip={false} label={event.reason} />
                      {event.count > 1 && <span class="badge">×{event.count}</span>}
                      <span class="faint small" style={{ marginLeft: "auto" }}>
                        <Time at={event.last} suffix=" ago" />
                      </span>
                    </div>
                    <p>{event.message}</p>
                  </li>
                ))}
              </ul>
            ) : (
              <p class="body muted">No events are kept about it.</p>
            )}
          </Card>
          {Object.entries(xr.links).length > 0 && (
            <Card title="Elsewhere">
              <div class="row wrap">
                {Object.entries(xr.links).map(([label, to]) => (
                  <a key={label} class="button" href={to} target="_blank" rel="noreferrer noopener">
                    <Icon name="out" />
                    {label}
                  </a>
                ))}
              </div>
            </Card>
          )}
        </div>
      </div>
    </>
  );
}

function Runs({ xr }: { xr: XrDetail }) {
  return (
    <Card title="Runs" flush side={<span class="small muted">what its pipeline did, newest first</span>}>
      {xr.runs.length ? (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Run</th>
                <th>Because</th>
                <th>Result</th>
                <th class="right">Took</th>
                <th class="right">When</th>
              </tr>
            </thead>
            <tbody>
              {xr.runs.map((run) => (
                <tr key={run.id}>
                  <td>
                    <A to={`/run/${run.uid}/${run.id}`}>#{run.id}</A>
                  </td>
                  <td class="muted">{run.trigger || "–"}</td>
                  <td class="break">{run.failure ? <span class="status tone-bad"><Icon name="cross" />{run.failure.slice(0, 160)}</span> : <span class="status tone-good"><Icon name="ready" />Done</span>}</td>
                  <td class="right">{duration(run.seconds)}</td>
                  <td class="right muted">
                    <Time at={run.started} suffix=" ago" />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <Empty icon="clock" title="No run is recorded">{xr.runsNote || "The next reconcile leaves one."}</Empty>
      )}
    </Card>
  );
}

function collect(node: TreeNode): TreeNode[] {
  const bad = ["NotSynced", "NotReady", "Missing", "Deviating"].includes(node.health) || Boolean(node.error);
  return [...(bad && (node.state || node.error) ? [node] : []), ...node.children.flatMap(collect)].slice(0, 20);
}
