/** Number of random stories of a property: `usual` in `npm test`, more in `npm run properties`. */
export const stories = (usual: number): number => Number(process.env['LS_PROPERTY_SEEDS'] ?? usual);
