// A browser drops what it asks for when the machine gets a network interface, as with the start of a container: what
// did not come is asked for once more.

const AGAIN_MS = 300;

/** @param mayAgain - false: the failure counts as it is */
export async function onceMore<T>(ask: () => Promise<T>, mayAgain: () => boolean = () => true): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!mayAgain()) throw error;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    return await ask();
  }
}
