// Exports of events and log lines: the rows that are read, how they look, and the targets that settings name.
import type { Part } from '#shared/lifecycle.ts';
import { logRecords } from '../api/http/rest/logs.ts';
import type { LogRecordParts } from '../api/http/rest/logs.ts';
import { Exporter } from '../fleet/exports/exporter.ts';
import type { ExportKind, ExportPositions, ExportSource, ExportTarget } from '../fleet/exports/exporter.ts';
import { FileTarget } from '../fleet/exports/file-target.ts';
import { ExportMetrics } from '../fleet/exports/metrics.ts';
import { otlpTarget } from '../fleet/exports/otlp-target.ts';
import type { Queryable } from '../stores/store/db.ts';
import { eventsAfter } from '../stores/store/queries/event-reads.ts';
import {
  eventTails,
  exportPositions,
  logTails,
  storeExportPositions,
} from '../stores/store/queries/export-positions.ts';
import { readLogLines } from '../stores/store/queries/logs.ts';
import { eventRecordOf } from '../workspaces/events/envelope.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';

const FILES = 5;
const MIB = 1024 ** 2;

/** Builds an exporter for each target, with positions of its own. */
export async function openExports(
  { db, log, registry, settings }: Infrastructure,
  { leader }: ClusterState,
  directory: LogRecordParts['directory'],
): Promise<readonly Exporter[]> {
  const targets: ExportTarget[] = [];
  if (settings.LONGSHORE_EXPORT_OTLP !== undefined)
    targets.push(
      await otlpTarget({
        endpoint: settings.LONGSHORE_EXPORT_OTLP,
        headers: settings.LONGSHORE_EXPORT_OTLP_HEADERS ?? '',
      }),
    );
  if (settings.LONGSHORE_EXPORT_FILE !== undefined)
    targets.push(
      new FileTarget({
        path: settings.LONGSHORE_EXPORT_FILE,
        maxBytes: settings.LONGSHORE_EXPORT_FILE_MIB * MIB,
        files: FILES,
      }),
    );
  // The metrics page is the same with and without exports.
  const metrics = new ExportMetrics(registry);
  const kinds = settings.LONGSHORE_EXPORT_KINDS;
  const sources = [eventSource(db), logSource(db, { directory })].filter(
    ({ kind }) => kinds === 'all' || kinds === kind,
  );
  return targets.map(
    (target) => new Exporter({ sources, target, positions: positionsOf(db, target.name), leader, log, metrics }),
  );
}

/** Parts of the exporters, and how they hear of new rows. */
export function exportsPart(exporters: readonly Exporter[]): Part {
  return {
    name: 'exports',
    start: () => {
      for (const exporter of exporters) exporter.start();
    },
    stop: async () => {
      await Promise.all(exporters.map((exporter) => exporter.stop()));
    },
  };
}

const positionsOf = (db: Queryable, target: string): ExportPositions => {
  const keyOf = (kind: ExportKind): string => `${target}:${kind}`;
  return {
    load: (kind) => exportPositions(db, keyOf(kind)),
    store: (kind, positions) => storeExportPositions(db, keyOf(kind), positions),
  };
};

export const eventSource = (db: Queryable): ExportSource => ({
  kind: 'events',
  tails: () => eventTails(db),
  next: async (workspaceId, after, limit) => {
    const rows = await eventsAfter(db, workspaceId, after, limit);
    const records = rows.map((row) => ({
      kind: 'events' as const,
      atMs: row.atMs,
      storedAtMs: row.storedAtMs,
      record: { ...eventRecordOf(row) },
    }));
    return { records, last: rows.at(-1)?.seq ?? after };
  },
});

export const logSource = (db: Queryable, parts: LogRecordParts): ExportSource => ({
  kind: 'logs',
  tails: () => logTails(db),
  next: async (workspaceId, after, limit) => {
    const rows = await readLogLines(db, { workspaceId }, { afterId: after }, undefined, limit);
    const shown = await logRecords(
      parts,
      workspaceId,
      rows.map((row) => ({ ...row, seq: row.id })),
    );
    const records = rows.map(({ atMs }, at) => ({
      kind: 'logs' as const,
      atMs,
      storedAtMs: atMs,
      record: { ...shown[at] },
    }));
    return { records, last: rows.at(-1)?.id ?? after };
  },
});
