// Images with packages of PyPI, made by hand as people make theirs: the base image, a virtual environment, pip. Each is
// kept by its tag, so that only the first run on an engine pays for it.
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import type Docker from 'dockerode';
import { waitFor } from './programs.ts';

/** Certificates that this machine trusts, by the same variable as set-up and the clients here use. */
const HOST_CA = process.env['SSL_CERT_FILE'] || '/etc/ssl/certs/ca-certificates.crt';
const VENV = '/opt/ml';
const BUILD_MS = 170_000;
/** Variables of this host that pip needs to reach its index. */
const PASSED_ON = ['PIP_INDEX_URL', 'PIP_EXTRA_INDEX_URL', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'];

export interface PipImage {
  readonly client: Docker;
  readonly baseImage: string;
  /** Name of the image, without a tag. */
  readonly repository: string;
  /** Packages with their versions, as pip takes them, apart by spaces. */
  readonly packages: string;
  /** Label by which objects of this run are found and removed. */
  readonly label: readonly [name: string, value: string];
}

/** The image's reference; builds it when the engine has none for its base image. */
export async function pipImage({ client, baseImage, repository, packages, label }: PipImage): Promise<string> {
  const base = await client.getImage(baseImage).inspect();
  const tag = createHash('sha256').update(`${base.Id} ${packages}`).digest('hex').slice(0, 12);
  const reference = `${repository}:${tag}`;
  const images = await client.listImages({ filters: { reference: [reference] } });
  if (images.length > 0) return reference;
  const settings = PASSED_ON.flatMap((name) => {
    const value = process.env[name] ?? process.env[name.toLowerCase()];
    return value === undefined ? [] : [`export ${name}='${value}'`];
  });
  const steps = [
    ...settings,
    ...(existsSync(HOST_CA) ? [`export PIP_CERT=${HOST_CA}`] : []),
    `python3 -m venv ${VENV}`,
    `${VENV}/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: ${packages}`,
  ];
  const container = await client.createContainer({
    Image: baseImage,
    Cmd: ['sh', '-ec', steps.join('\n')],
    Labels: { [label[0]]: label[1] },
    HostConfig: { NetworkMode: 'host', Binds: existsSync(HOST_CA) ? [`${HOST_CA}:${HOST_CA}:ro`] : [] },
  });
  try {
    await container.start();
    // Asked again and again: a single request that waits is cut off by the time limit of the client.
    const { ExitCode: code } = await waitFor(
      async () => {
        const { State } = await container.inspect();
        return !State.Running && State;
      },
      `pip installs ${packages}`,
      BUILD_MS,
    );
    if (code !== 0) {
      const output = await container.logs({ stdout: true, stderr: true, tail: 20 });
      throw new Error(`the image with ${packages} could not be built (code ${code}):\n${output.toString('utf8')}`);
    }
    // The label is emptied, because otherwise every container of the image would count as this run's.
    const changes = [`ENV PATH=${VENV}/bin:/usr/local/bin:/usr/bin:/bin`, 'CMD ["python3"]', `LABEL ${label[0]}=`];
    await container.commit({ repo: repository, tag, changes: changes.join('\n') });
    return reference;
  } finally {
    await container.remove({ force: true, v: true });
  }
}
