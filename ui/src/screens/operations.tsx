// Day two: Operations of every kind, and ActionSets with the phases they are made of.
import { useSignal } from "@preact/signals";
import { get } from "../api";
import { many } from "../format";
import { Actions } from "../parts/actions";
import { Banner, Bar, Card, Empty, Screen, Time, useLive } from "../parts/common";
import { Phase } from "../parts/status";
import type { OperationRow, Operations } from "../types";

export function OperationsScreen() {
  const loaded = useLive<Operations>("operations", (abort) => get("/operations", abort), ["operations", "cronoperations", "watchoperations", "actionsets"]);
  return (
    <>
      <div class="title">
        <h1>Operations and ActionSets</h1>
      </div>
      <Screen loaded={loaded}>
        {(value) => (
          <>
            {value.problems.map((each) => (
              <Banner key={each.what} tone="warn" icon="warn">
                <b>{each.what}s are not shown.</b> {each.message}
              </Banner>
            ))}
            <Card title={many(value.rows.length, "object")} flush>
              {value.rows.length ? (
                <div class="scroll">
                  <table>
                    <thead>
                      <tr>
                        <th>Name</th>
                        <th>Kind</th>
                        <th>State</th>
                        <th>Steps</th>
                        <th>Schedule</th>
                        <th class="right">Age</th>
                        <th />
                      </tr>
                    </thead>
                    <tbody>
                      {value.rows.map((row) => (
                        <Row key={`${row.kind}/${row.namespace}/${row.name}`} row={row} again={loaded.again} />
                      ))}
                    </tbody>
                  </table>
                </div>
              ) : (
                <Empty icon="operation" title="Nothing has been run" commands={["planform apply -f operation.yaml", "planform actionset create --action backup --blueprint NAME"]}>
                  Operations run a pipeline once, on a schedule or on a change; ActionSets run the actions of Blueprints.
                </Empty>
              )}
            </Card>
          </>
        )}
      </Screen>
    </>
  );
}

function Row({ row, again }: { row: OperationRow; again: () => void }) {
  const open = useSignal(false);
  const done = row.phases.filter((phase) => ["complete", "Ran"].includes(phase.state)).length;
  const failed = row.phases.filter((phase) => phase.state === "failed").length;
  return (
    <>
      <tr>
        <td class="break">
          <button type="button" class="button" data-row aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
            {row.namespace && <span class="muted">{row.namespace}/</span>}
            {row.name}
          </button>
          {row.message && <div class="small muted">{row.message.slice(0, 200)}</div>}
        </td>
        <td>
          <span class="badge">{row.kind}</span>
        </td>
        <td>
          <Phase value={row.state} />
        </td>
        <td style={{ minWidth: "120px" }}>
          <Bar label={`${done} of ${row.phases.length} done`} parts={[{ size: done, class: "b-good", title: `${done} done` }, { size: failed, class: "b-bad", title: `${failed} failed` }, { size: row.phases.length - done - failed, class: "", title: "to do" }]} />
          <span class="small muted">
            {done}/{row.phases.length}
            {row.progress && ` · ${row.progress} %`}
          </span>
        </td>
        <td>
          {row.schedule ? <code>{row.schedule}</code> : <span class="faint">–</span>}
          {row.last && (
            <div class="small muted">
              last <Time at={row.last} suffix=" ago" />
            </div>
          )}
        </td>
        <td class="right muted">
          <Time at={row.created} />
        </td>
        <td>
          <Actions actions={row.actions} of={{ kind: row.kind, namespace: row.namespace, name: row.name, done: again }} />
        </td>
      </tr>
      {open.value && (
        <tr>
          <td colSpan={7}>
            <ul class="conditions">
              {row.phases.map((phase) => (
                <li key={phase.name}>
                  <div class="row wrap">
                    <Phase value={phase.state} chip={false} label={phase.state || "waits"} />
                    <b>{phase.name}</b>
                    <span class="muted small">{phase.detail}</span>
                    {phase.progress && <span class="num small muted">{phase.progress} %</span>}
                  </div>
                </li>
              ))}
            </ul>
          </td>
        </tr>
      )}
    </>
  );
}
