"""Results as one offline page, as Markdown for a pull request, and as a chart."""
