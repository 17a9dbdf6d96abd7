// Excerpts of the pages found need a server: a page opened from a disk may not read others.
DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";
