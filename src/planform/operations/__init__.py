"""Operations, CronOperations and WatchOperations: pipelines that run once to completion."""
