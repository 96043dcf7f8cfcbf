// Text in HTML.

/** @param {string} text @returns {string} */
export const escaped = (text) => text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
