// The stand-in for NVIDIA's tool, which answers as the real one does by the JSON file named by
// its first argument. The file is `{ gpus: [{ field: value }], processes, unknownFields, hang,
// fail: { exitCode, stdout, stderr } }`. Unknown fields are refused, `noheader` and `nounits`
// are honoured, and `[N/A]` stands for absent values. Plain JavaScript, so that it starts fast.
import { readFileSync } from 'node:fs';

const [path, ...args] = process.argv.slice(2);
const world = JSON.parse(readFileSync(path, 'utf8'));
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

if (world.hang) {
  // A grandchild hangs, too: a caller that gives up must end the whole group.
  setInterval(() => undefined, 1000);
} else answer();

function end(exitCode, stdout, stderr = '') {
  process.stdout.write(stdout);
  process.stderr.write(stderr);
  process.exitCode = exitCode;
}

function answer() {
  if (world.fail) return end(world.fail.exitCode, world.fail.stdout ?? '', world.fail.stderr ?? '');
  const option = (name) => args.find((one) => one.startsWith(`--${name}=`))?.slice(name.length + 3);
  const only = option('id');
  const all = (world.gpus ?? []).map((gpu, index) => ({ index, ...gpu }));
  const gpus =
    only === undefined ? all : all.filter((gpu) => [gpu.uuid, String(gpu.index), gpu['pci.bus_id']].includes(only));
  if (only === undefined && world.brokenAll)
    return end(255, `Unable to determine the device handle for GPU${world.brokenAll}: Unknown Error\n`);
  if (args.includes('-L')) return end(0, gpus.map(listed).join(''));
  if (args.includes('-q')) return end(0, `<nvidia_smi_log>\n${gpus.map(asXml).join('')}</nvidia_smi_log>\n`);
  const format = (option('format') ?? '').split(',');
  if (!format.includes('csv'))
    return end(2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
  const apps = option('query-compute-apps')?.split(',');
  if (apps !== undefined) {
    const rows = (world.processes ?? []).map((one) => apps.map((field) => String(one[field] ?? '[N/A]')).join(', '));
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

function asXml(gpu) {
  const slices = (gpu.slices ?? []).map(
    (slice, index) =>
      `\t\t\t<mig_device>\n\t\t\t\t<index>${index}</index>\n\t\t\t\t<gpu_instance_id>${slice.instance}</gpu_instance_id>\n\t\t\t</mig_device>\n`,
  );
  return `\t<gpu id="${gpu['pci.bus_id']}">\n\t\t<mig_devices>\n${slices.join('')}\t\t</mig_devices>\n\t\t<uuid>${gpu.uuid}</uuid>\n\t</gpu>\n`;
}

function listed(gpu) {
  const slices = (gpu.slices ?? []).map(
    (slice, index) => `  MIG ${slice.profile.padEnd(15)} Device ${String(index).padStart(2)}: (UUID: ${slice.uuid})\n`,
  );
  return `GPU ${gpu.index}: ${gpu.name} (UUID: ${gpu.uuid})\n${slices.join('')}`;
}
