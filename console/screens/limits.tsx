// Limits of a workspace, with what is used of each. Administrators change them by the command line.
import type { LimitsRecord } from '#shared/api/rest/limits.ts';
import { rest } from '../api/client.ts';
import { useResource } from '../live/resource.ts';
import { bytesOf } from '../parts/bytes.ts';
import { Shown, Twin } from '../parts/notices.tsx';
import type { ScreenProps } from './screen.ts';

const EVERY_MS = 15_000;

interface Row {
  readonly name: string;
  /** undefined: not counted. */
  readonly used: number | undefined;
  /** null: no bound. */
  readonly limit: number | null;
  readonly isBytes?: boolean;
}

/** Names of fields for people. */
const said = (field: string): string =>
  field.replaceAll('_', ' ').replace('mib', 'MiB').replace('gpu', 'GPU').replace('cpu', 'CPU').replace(' limit', '');

export function LimitsPart({ workspace }: ScreenProps) {
  const path = `/workspace/${workspace.id}/limits`;
  const limits = useResource(path, (signal) => rest<LimitsRecord>(path, { signal }), EVERY_MS);
  return (
    <>
      <h2>Limits</h2>
      <Shown of={limits}>{(value) => <Tables of={value} />}</Shown>
      <Twin line="longshore workspace limits" />
    </>
  );
}

function Tables({ of }: { readonly of: LimitsRecord }) {
  const { concurrency, usage } = of;
  const counted = (all: Readonly<Record<string, { readonly used: number; readonly limit: number | null }>>) =>
    Object.entries(all).map(([name, { used, limit }]) => ({ name: said(name), used, limit }));
  const bounds = (all: Readonly<Record<string, number | null>>): Row[] =>
    Object.entries(all).map(([name, limit]) => ({ name: said(name), used: undefined, limit }));
  return (
    <>
      <Table
        title="At once"
        rows={[
          { name: 'GPUs', used: usage.gpu, limit: concurrency.gpu_limit },
          { name: 'CPU millicores', used: usage.cpu_millicores, limit: concurrency.cpu_millicore_limit },
          { name: 'memory MiB', used: usage.memory_mib, limit: concurrency.memory_mib_limit },
          { name: 'containers', used: usage.containers, limit: concurrency.container_limit },
        ]}
      />
      <Table title="Counts" rows={counted(of.counts)} />
      <Table title="Bytes" rows={counted(of.bytes).map((row) => ({ ...row, isBytes: true }))} />
      <Table title="Rates" rows={bounds(of.rate)} />
      <Table title="Of one stub" rows={bounds(of.stub)} />
      <Table title="Of tasks" rows={bounds(of.tasks)} />
      <Table title="Days that are kept" rows={bounds(of.retention)} />
    </>
  );
}

function Table({ title, rows }: { readonly title: string; readonly rows: readonly Row[] }) {
  const shown = (value: number, { isBytes = false }: Row): string => (isBytes ? bytesOf(value) : String(value));
  const hasUse = rows.some(({ used }) => used !== undefined);
  return (
    <section>
      <h3>{title}</h3>
      <table>
        <thead>
          <tr>
            <th scope="col">Limit</th>
            {hasUse ? (
              <th scope="col" class="number">
                Used
              </th>
            ) : null}
            <th scope="col" class="number">
              Of
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">
                {row.name}
                {row.used !== undefined && row.limit !== null && row.used >= row.limit ? (
                  <strong class="error"> reached</strong>
                ) : null}
              </th>
              {hasUse ? <td class="number">{row.used === undefined ? '' : shown(row.used, row)}</td> : null}
              <td class="number">{row.limit === null ? 'no bound' : shown(row.limit, row)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
