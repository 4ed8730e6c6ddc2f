// What holds changes: policies with their waves, and a calendar of windows.
import { get } from "../api";
import { exact, many } from "../format";
import { Card, Conditions, Empty, Screen, Time, useLive } from "../parts/common";
import { Phase } from "../parts/status";
import type { Policies, WindowRow } from "../types";

const DAY = 86_400_000;

export function PoliciesScreen() {
  const loaded = useLive<Policies>("policies", (abort) => get("/policies", abort), ["policies", "windows"]);
  return (
    <>
      <div class="title">
        <h1>Policies and windows</h1>
      </div>
      <Screen loaded={loaded}>
        {(value) => (
          <>
            <Card title="Change windows" flush side={<span class="small muted">the two weeks to come</span>}>
              {value.windows.length ? (
                <Calendar value={value} />
              ) : (
                <Empty icon="policy" title="No window holds anything back" commands={["planform freeze --for tier=gold --until 2027-01-04 --reason 'year end'"]}>
                  A ChangeWindow says when XRs may move, or may not. A way back is never held.
                </Empty>
              )}
            </Card>
            {value.policies.length ? (
              <div class="grid">
                {value.policies.map((policy) => (
                  <Card key={policy.name} title={policy.name} side={<Phase value="Present" label={`starts: ${policy.start}`} />}>
                    <dl class="facts-list">
                      <dt>Holds</dt>
                      <dd>{policy.selects}</dd>
                      <dt>Waves</dt>
                      <dd>
                        <ol>
                          {policy.waves.map((wave, index) => (
                            <li key={wave}>
                              {index + 1}. {wave}
                            </li>
                          ))}
                        </ol>
                      </dd>
                      <dt>Gates</dt>
                      <dd>{["ready", ...policy.gates.filter((gate) => gate !== "ready")].join(", ")}</dd>
                    </dl>
                    {policy.conditions.length > 0 && <Conditions items={policy.conditions} none="" />}
                  </Card>
                ))}
              </div>
            ) : (
              <Card title="Policies" flush>
                {value.served ? (
                  <Empty icon="rollout" title="No policy: XRs follow at once" commands={["planform explain rolloutpolicy", "planform apply -f rollout-policy.yaml"]}>
                    Under a RolloutPolicy a new revision moves the fleet in waves.
                  </Empty>
                ) : (
                  <Empty icon="rollout" title="This control plane knows no policies" />
                )}
              </Card>
            )}
          </>
        )}
      </Screen>
    </>
  );
}

function Calendar({ value }: { value: Policies }) {
  const begin = Date.parse(value.begin);
  const whole = Date.parse(value.end) - begin;
  const days = Math.round(whole / DAY);
  const place = (time: number) => `${((time - begin) / whole) * 100}%`;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Calendar of change windows">
      <div class="calendar">
        <div class="cal-row">
          <span />
          <div class="cal-days" style={{ gridTemplateColumns: `repeat(${days}, 1fr)` }}>
            {Array.from({ length: days }, (_, index) => (
              <span key={index}>{new Date(begin + index * DAY).toLocaleDateString(undefined, { weekday: "short", day: "numeric", timeZone: "UTC" })}</span>
            ))}
          </div>
        </div>
        {value.windows.map((window) => (
          <div class="cal-row" key={window.name}>
            <div class="body">
              <b>{window.name}</b>
              <div class="small">
                <State window={window} />
              </div>
              <div class="small faint break">{window.selects}</div>
            </div>
            <div class="cal-track" role="img" aria-label={`${window.effect}, ${many(window.spans.length, "span")} in two weeks`}>
              {Array.from({ length: days }, (_, index) => (
                <u key={index} style={{ left: `${(index / days) * 100}%` }} />
              ))}
              {window.spans.map((each) => (
                <i
                  key={each.begin}
                  class={window.effect === "Deny" ? "deny" : ""}
                  title={`${window.effect}: ${exact(each.begin)} to ${exact(each.end)}`}
                  style={{ left: place(Date.parse(each.begin)), width: `${((Date.parse(each.end) - Date.parse(each.begin)) / whole) * 100}%` }}
                />
              ))}
              <s style={{ left: place(Date.now()) }} title="now" />
            </div>
          </div>
        ))}
      </div>
    </div>
  );
}

function State({ window }: { window: WindowRow }) {
  const closes = window.effect === "Deny" ? window.open : !window.open;
  return (
    <span class="row wrap">
      <Phase value={closes ? "Closed" : "Open"} chip={false} label={window.effect === "Deny" ? (window.open ? "Denies now" : "Not now") : window.open ? "Open" : "Closed"} />
      {window.next && (
        <span class="faint" title={exact(window.next)}>
          until <Until at={window.next} />
        </span>
      )}
    </span>
  );
}

function Until({ at }: { at: string }) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? <Time at={at} /> : <span>{time.toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" })}</span>;
}
