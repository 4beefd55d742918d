// Actions of an operator on a machine and its GPUs: keep new work away, let it come again, have everything leave.
import { may } from '../../api/session.ts';
import { Action } from '../../parts/action.tsx';
import { counted } from '../../parts/counted.ts';
import { word } from '../../parts/word.ts';

interface OfMachine {
  readonly machineId: string;
  /** The machine's name for people. */
  readonly name: string;
  readonly done: () => void;
}

const callTo = (path: string) => ({ method: 'POST', path, body: {} }) as const;

/** Drains a machine. `count`: containers that run there; absent: not known. */
export function Drain({ machineId, name, count, done }: OfMachine & { readonly count?: number }) {
  if (!may('POST /gateway/workers/{workerId}/drain')) return null;
  return (
    <Action
      label="Drain"
      question={`Drain ${name}?`}
      sure="Drain it"
      call={callTo(`/gateway/workers/${encodeURIComponent(machineId)}/drain`)}
      line={`longshore worker drain ${word(machineId)}`}
      said={() => <p>It drains. The list of machines shows what is left there, and what blocks it.</p>}
      onDone={done}
    >
      <p>
        {count === undefined ? '' : `${counted(count, 'container')} ${count === 1 ? 'runs' : 'run'} there. `}
        Nothing new comes to the machine. Containers that serve calls wait for their replacement elsewhere, and those
        that work on tasks end them. After 30 minutes the rest is stopped, and its tasks run again elsewhere.
      </p>
    </Action>
  );
}

export function Cordon({ machineId, name, done }: OfMachine) {
  if (!may('POST /gateway/workers/{workerId}/cordon')) return null;
  return (
    <Action
      label="Cordon"
      question={`Cordon ${name}?`}
      sure="Cordon it"
      call={callTo(`/gateway/workers/${encodeURIComponent(machineId)}/cordon`)}
      line={`longshore worker cordon ${word(machineId)}`}
      said={() => <p>It takes nothing new.</p>}
      onDone={done}
    >
      <p>Nothing new comes to the machine. What runs there goes on.</p>
    </Action>
  );
}

export function Uncordon({ machineId, name, isDrain, done }: OfMachine & { readonly isDrain: boolean }) {
  if (!may('POST /gateway/workers/{workerId}/uncordon')) return null;
  return (
    <Action
      label={isDrain ? 'Stop draining' : 'Uncordon'}
      question={isDrain ? `Stop draining ${name}?` : `Uncordon ${name}?`}
      sure={isDrain ? 'Let it serve again' : 'Uncordon it'}
      call={callTo(`/gateway/workers/${encodeURIComponent(machineId)}/uncordon`)}
      line={`longshore worker uncordon ${word(machineId)}`}
      said={() => <p>New containers may be placed there again.</p>}
      onDone={done}
    >
      <p>New containers may be placed on the machine again. A drain of it ends.</p>
    </Action>
  );
}

export function GpuOrder({
  machineId,
  uuid,
  name,
  isExcluded,
  done,
}: OfMachine & { readonly uuid: string; readonly isExcluded: boolean }) {
  if (!may('POST /gateway/machines/{machineId}/gpus')) return null;
  const call = (action: string) =>
    ({
      method: 'POST',
      path: `/gateway/machines/${encodeURIComponent(machineId)}/gpus`,
      body: { uuid, action },
    }) as const;
  if (isExcluded)
    return (
      <Action
        label="Return"
        question={`Return GPU ${name}?`}
        sure="Return it"
        call={call('return')}
        line={`longshore machine gpu return ${word(machineId)} ${word(uuid)}`}
        said={() => <p>It is probed, and serves when the probe has passed.</p>}
        onDone={done}
      >
        <p>The GPU is probed, and serves when the probe has passed.</p>
      </Action>
    );
  return (
    <Action
      label="Exclude"
      question={`Exclude GPU ${name}?`}
      sure="Exclude it"
      call={call('exclude')}
      line={`longshore machine gpu exclude ${word(machineId)} ${word(uuid)}`}
      said={() => <p>It is given to nobody until it is returned.</p>}
      onDone={done}
    >
      <p>The GPU is given to nobody until it is returned, over reboots. What runs on it goes on.</p>
    </Action>
  );
}
