// Copying to the clipboard, which needs HTTPS or a loopback address.

/** @param {string} text @returns {Promise<boolean>} whether the browser allowed it */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
