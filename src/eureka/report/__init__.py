"""One self-contained HTML page about run folders: curves, plateaus, Eureka-moments, comparisons, attention, config. No torch.

`eureka.report.write` has the entry points, `write_report` and `write_report_of`. Modules prepare typed data; `templates/` and
`assets/` make it the page.
"""
