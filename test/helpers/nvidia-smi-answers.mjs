// Answers of NVIDIA's tool from a JSON description of the world: `{ gpus: [{ field: value }], processes, unknownFields,
// hang, fail: { exitCode, stdout, stderr }, brokenAll, hangAll, hangOne }`. Unknown fields are refused, `noheader` and
// `nounits` are honoured, and `[N/A]` stands for absent values.
const KNOWN = new Set([
  'index',
  'uuid',
  'name',
  'memory.total',
  'memory.used',
  'utilization.gpu',
  'temperature.gpu',
  'power.draw',
  'driver_version',
  'compute_cap',
  'mig.mode.current',
  'pci.bus_id',
  'display_active',
  'gpu_recovery_action',
  'persistence_mode',
  'ecc.mode.current',
  'ecc.errors.uncorrected.volatile.total',
  'retired_pages.pending',
  'pcie.link.width.current',
  'pcie.link.width.max',
  'fabric.state',
  'clocks_event_reasons.hw_thermal_slowdown',
  'clocks_event_reasons.hw_power_brake_slowdown',
  'clocks_throttle_reasons.hw_thermal_slowdown',
  'clocks_throttle_reasons.hw_power_brake_slowdown',
]);
const UNITS = { 'memory.total': ' MiB', 'memory.used': ' MiB', 'utilization.gpu': ' %', 'power.draw': ' W' };

const end = (exitCode, stdout, stderr = '') => ({ exitCode, stdout, stderr });
/** Bus ids as the tool compares them: the domain may have four or eight digits. */
const busOf = (text) =>
  String(text)
    .toLowerCase()
    .replace(/^0000(?=[0-9a-f]{4}:)/, '');

/**
 * @param world - as above @param args - of the tool
 * @returns the end of the tool; undefined: it hangs
 */
export function answer(world, args) {
  if (world.hang) return undefined;
  if (world.fail) return end(world.fail.exitCode, world.fail.stdout ?? '', world.fail.stderr ?? '');
  const option = (name) => args.find((one) => one.startsWith(`--${name}=`))?.slice(name.length + 3);
  const only = option('id');
  const all = (world.gpus ?? []).map((gpu, index) => ({ index, ...gpu }));
  const gpus =
    only === undefined
      ? all
      : all.filter((gpu) => [gpu.uuid, String(gpu.index)].includes(only) || busOf(gpu['pci.bus_id']) === busOf(only));
  const hangs = world.hangOne ?? [];
  if (only === undefined ? hangs.length > 0 : gpus.some((gpu) => hangs.includes(gpu.uuid))) return undefined;
  const handle = (bus) => `Unable to determine the device handle for GPU${bus}: Unknown Error\n`;
  if (only === undefined && world.brokenAll) return end(255, handle(world.brokenAll));
  if (only !== undefined && world.brokenAll && busOf(world.brokenAll) === busOf(only)) return end(255, handle(only));
  if (only !== undefined && gpus.length === 0) return end(6, 'No devices were found\n');
  if (args.includes('-L')) return end(0, gpus.map(listed).join(''));
  if (args[0] === 'topo') return end(0, matrixOf(all, world.links ?? []));
  if (args.includes('-q')) return end(0, `<nvidia_smi_log>\n${gpus.map(asXml).join('')}</nvidia_smi_log>\n`);
  const format = (option('format') ?? '').split(',');
  if (!format.includes('csv'))
    return end(2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
  const apps = option('query-compute-apps')?.split(',');
  if (apps !== undefined) {
    const uuids = new Set(gpus.flatMap((gpu) => [gpu.uuid, ...(gpu.slices ?? []).map(({ uuid }) => uuid)]));
    const rows = (world.processes ?? [])
      .filter((one) => only === undefined || uuids.has(one.gpu_uuid))
      .map((one) => apps.map((field) => String(one[field] ?? '[N/A]')).join(', '));
    return end(0, rows.map((row) => `${row}\n`).join(''));
  }
  const remaps = option('query-remapped-rows')?.split(',');
  if (remaps !== undefined) {
    const rows = gpus.map((gpu) => remaps.map((field) => gpu[field === 'gpu_uuid' ? 'uuid' : field] ?? '[N/A]'));
    return end(0, rows.map((row) => `${row.join(', ')}\n`).join(''));
  }
  const fields = option('query-gpu')?.split(',') ?? [];
  const unknown = fields.find((field) => !KNOWN.has(field) || (world.unknownFields ?? []).includes(field));
  if (unknown !== undefined) return end(2, `Field "${unknown}" is not a valid field to query.\n\n`);
  if (gpus.length === 0) return end(6, 'No devices were found\n');
  const header = format.includes('noheader') ? '' : `${fields.join(', ')}\n`;
  const value = (gpu, field) => {
    const found = gpu[field];
    if (found === undefined) return '[N/A]';
    return `${found}${format.includes('nounits') ? '' : (UNITS[field] ?? '')}`;
  };
  return end(0, header + gpus.map((gpu) => `${fields.map((field) => value(gpu, field)).join(', ')}\n`).join(''));
}

/** @param links - groups of indexes that are linked by NVLink, each with each */
function matrixOf(gpus, links) {
  const names = gpus.map(({ index }) => `GPU${index}`);
  const head = `\u001b[4m\t${names.join('\t')}\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u001b[0m\n`;
  const cell = (a, b) =>
    a === b ? ' X ' : links.some((some) => some.includes(a) && some.includes(b)) ? 'NV12' : 'SYS';
  const rows = gpus.map(
    ({ index }) => `GPU${index}\t${gpus.map((other) => cell(index, other.index)).join('\t')}\t0-31\t0\t\tN/A\n`,
  );
  return `${head}${rows.join('')}\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n`;
}

function asXml(gpu) {
  const slices = (gpu.slices ?? []).map(
    (slice, index) =>
      `\t\t\t<mig_device>\n\t\t\t\t<index>${index}</index>\n\t\t\t\t<gpu_instance_id>${slice.instance}</gpu_instance_id>\n\t\t\t\t<fb_memory_usage>\n\t\t\t\t\t<total>40320 MiB</total>\n\t\t\t\t\t<used>${slice.used ?? 20} MiB</used>\n\t\t\t\t</fb_memory_usage>\n\t\t\t</mig_device>\n`,
  );
  return `\t<gpu id="${gpu['pci.bus_id']}">\n\t\t<mig_devices>\n${slices.join('')}\t\t</mig_devices>\n\t\t<uuid>${gpu.uuid}</uuid>\n\t</gpu>\n`;
}

function listed(gpu) {
  const slices = (gpu.slices ?? []).map(
    (slice, index) => `  MIG ${slice.profile.padEnd(15)} Device ${String(index).padStart(2)}: (UUID: ${slice.uuid})\n`,
  );
  return `GPU ${gpu.index}: ${gpu.name} (UUID: ${gpu.uuid})\n${slices.join('')}`;
}
